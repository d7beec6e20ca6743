"""Tables of verbs and their arguments.

``pick up | pick_up | ab-holen | | relatives | from | | | ih`` is "to pick up" somebody of the
family "from" somewhere: in German a regular verb with a separable prefix.
"""

# key | english base[ past participle] | german infinitive, with - behind a separable prefix[, third
# person, participle]: "-" where regular, "*" with sein | government: dat, dat+acc or a preposition
# with the accusative | objects: classes, with +a, +the or +my where the determiner is fixed |
# complements | places | manners | flags:
#   s state (present only)  g no progressive  t past only  h habit  l reaches back years
#   n only as the effect of a state  i imperative  p passive  r reflexive in German
FRAMES = """
read | read read read | lesen liest gelesen | | text | | calm | slowly | iph
write | write wrote written | schreiben - geschrieben | | script | | desk | quickly | ih
buy food | buy bought bought | kaufen | | fruit, grocery, cold drink | | food shop | | ih
buy | buy bought bought | kaufen | | clothes, clothes, furniture, vehicle, book | | | | il
sell | sell sold sold | verkaufen - verkauft | | vehicle+my, furniture+my | | | | gl
eat | eat ate eaten | essen isst gegessen | | snack, dish, staple | | meal | | ih
drink | drink drank drunk | trinken - getrunken | | cup, cold drink, hot drink | | meal | | ih
cook | cook | kochen | | pot | | stove | | iph
bake | bake | backen backt gebacken | | baked | | stove | | iph
see | see saw seen | sehen sieht gesehen | | people, building, pet | | outside | | glt
meet | meet met met | treffen trifft getroffen | | people | | rendezvous | | gh
visit | visit | besuchen - besucht | | people, sight | | | | ilph
love | love | lieben | | people | | | | s
know | know knew known | kennen - gekannt | | people, song+the | | | | s
like | like | mögen mag gemocht | | people, clothes+the, show+the, home+the | | | | s
need | need | brauchen | | useful+a, furniture+a, means, unisex+a | | | | s
have | have had had | haben hat gehabt | | vehicle+a, pet+a, useful+a | | | | s
help | help | helfen hilft geholfen | dat | people | | chores | | ih
thank | thank | danken | dat | people | | | | g
answer | answer | antworten | dat | people | | | quickly | g
ask | ask | fragen | | people | | | | ig
give | give gave given | geben gibt gegeben | dat+acc | gift | | | | g
show | show showed shown | zeigen | dat+acc | hanging, home+the, book, gift | | | | ig
send | send sent sent | schicken | dat+acc | mail | | | | i
bring | bring brought brought | bringen - gebracht | dat+acc | cup, book | | | | i
lend | lend lent lent | leihen - geliehen | dat+acc | useful | | | | g
tell | tell told told | erzählen - erzählt | dat+acc | speech | | | | i
find | find found found | finden - gefunden | | lost | | street | | gt
lose | lose lost lost | verlieren - verloren | | lost+my | | street | | gt
look for | look_for | suchen | | lost+my | | street | | i
forget | forget forgot forgotten | vergessen vergisst vergessen | | lost+my | | | | gt
wear | wear wore worn | tragen trägt getragen | | unisex+a | | | | g
carry | carry | tragen trägt getragen | | luggage+the | carry | | slowly carefully | i
lay | put put put | legen | | lying+my | onto | | | i
stand | put put put | stellen | | standing+the | onto | | | i
put on | put_on put put | an-ziehen - gezogen | | unisex+my | | | quickly | i
open | open | öffnen | | opening+the | | | slowly quietly carefully | ip
close | close | schließen - geschlossen | | opening+the | | | slowly quietly carefully | ip
repair | repair | reparieren - repariert | | broken+the | | garage | | ip
clean | clean | putzen | | room+the | | | | ih
wash | wash | waschen wäscht gewaschen | | washable+the | | | | iph
tidy up | tidy_up | auf-räumen | | room+the | | | | ih
turn on | turn_on | an-machen | | device+the | | | | i
turn off | turn_off | aus-machen | | device+the | | | | i
call | call | an-rufen - gerufen | | people | | | | ih
invite | invite | ein-laden lädt geladen | | people | | | | i
pick up | pick_up | ab-holen | | relatives | from | | | ih
understand | understand understood understood | verstehen - verstanden | | hard+the | | | | s
explain | explain | erklären - erklärt | | hard+the | | | slowly | ip
pay | pay paid paid | bezahlen - bezahlt | | bill+the | | | | ip
sing | sing sang sung | singen - gesungen | | song | | stage | loudly quietly together | ih
dance | dance | tanzen | | | | stage | well together alone | ih
listen to | listen_to | hören | | music | | calm | | h
watch | watch | sehen sieht gesehen | | film | | cinema | together | h
game | play | spielen | | | game | play | well together | h
instrument | play | spielen | | | instrument | stage | well quietly | h
play with | play | spielen | | | companion | play | | h
learn | learn | lernen | | language | | study | together | h
speak | speak spoke spoken | sprechen spricht gesprochen | | language | | | well | s
talk about | talk_about | sprechen spricht gesprochen | über | topic+the | | rendezvous | | h
wait for bus | wait_for | warten | auf | bus+the | | bus_stop | | h
wait for | wait_for | warten | auf | people | | rendezvous | | ih
think of | think_of thought thought | denken - gedacht | an | people | | | | s
remember | remember | erinnern - erinnert | an | people, joy+the | | | | rs
look forward to | look_forward_to | freuen | auf | joy+the | | | | r
sleep | sleep slept slept | schlafen schläft geschlafen | | | | rest | well | h
work | work | arbeiten | | | | work | hard alone together | h
swim | swim swam swum | schwimmen - *geschwommen | | | water | | together slowly | h
laugh | laugh | lachen | | | | | loudly | gh
cry | cry | weinen | | | | rest | quietly loudly | n
go | go went gone | gehen - *gegangen | | | destination | | together alone | ih
fly | fly flew flown | fliegen - *geflogen | | | far | | | gl
travel | travel | reisen - *gereist | | | far | | together alone | glh
run | run ran run | laufen läuft *gelaufen | | | through | | quickly together slowly | ih
hike | hike | wandern - *gewandert | | | trail | | together alone | h
stay | stay | bleiben - *geblieben | | | stay | | | i
come home | come came come | kommen - *gekommen | | | home | | early late | gh
arrive | arrive | an-kommen - *gekommen | | | | stop | | gt
come back | come_back came come | zurück-kommen - *gekommen | | | | | | g
come along | come_along came come | mit-kommen - *gekommen | | | | | | g
do the shopping | do_the_shopping did done | ein-kaufen | | | | food shop | together | h
watch television | watch_television | fern-sehen sieht gesehen | | | | indoors | together | gh
feed | feed fed fed | füttern | | farm+the | | farm | | iph
paint | paint | malen | | artwork | | calm | carefully | ih
draw | draw drew drawn | zeichnen | | artwork | | calm | quickly carefully | ih
build | build built built | bauen | | structure | | | | glp
plant | plant | pflanzen | | plant | | park | | ip
photograph | photograph | fotografieren - fotografiert | | building, flower | | outside | | ph
bed | go went gone | gehen - *gegangen | | | bed | | early late | gn
go home | go went gone | gehen - *gegangen | | | home | | early late quickly | gn
doctor | go went gone | gehen - *gegangen | | | doctor | | | gn
dress warmly | put_on put put | an-ziehen - gezogen | | warm clothes+my | | | | gn
"""

# state of a person: english=german | frames that follow from it | frames that it prevents
STATES = """
tired=müde | bed; go home; stay | dance; work; learn; swim; come along; game; read
ill=krank | stay; doctor; call | work; come along; swim; visit; go; hike; game
hungry=hungrig | eat; cook; bake | sleep; work; wait for
thirsty=durstig | drink | run; wait for; work
happy=glücklich | sing; dance; laugh | cry; stay
sad=traurig | cry; go home; think of; call | laugh; dance; sing
busy=beschäftigt | | come along; visit; meet; go; read; help
"""
# what one likes to do
PASTIMES = """
game; swim; dance; travel; hike; run; work; sleep; instrument; play with; go; listen to; drink
"""
# what different people do at the same time
SCENES = """
cook; bake; eat; drink; do the shopping; tidy up; clean
read; write; listen to; watch; clean; tidy up; sleep; draw; paint; call
swim; run; hike; game; play with; go; photograph
buy; buy food; pay; do the shopping; wait for bus; meet
work; learn; read; write; help; explain; call
repair; wash; plant; feed; build; clean; help; work
"""
# place: what one goes there for
AIMS = """
city: buy; meet
supermarket: buy food; do the shopping
library: read; learn
restaurant: eat; meet
café: drink; meet
lake: swim
swimming pool: swim
park: game; meet
station: meet
garden: work
kitchen: cook; bake; drink
garage: repair
cinema: watch
university: learn; meet
"""
# weather: what one does then
WEATHER = """
the weather is good: go; swim; hike; game; work; run
it rains: stay; read; watch television; listen to; instrument; cook
it snows: stay; bake; read; drink; watch television
the sun shines: swim; hike; go; run; photograph; plant
it is cold: stay; drink; watch television; dress warmly
"""
# verbs before "to": english | german | tense
PLANS = """
try | versuchen - versucht | progressive
try | versuchen - versucht | past
forget forgot forgotten | vergessen vergisst vergessen | past
promise | versprechen verspricht versprochen | past
begin began begun | beginnen - begonnen | past
decide | beschließen - beschlossen | past
plan | planen | present
"""
# what has a timetable: english | german | nouns (none: people)
TIMETABLE = """
leave left left | ab-fahren fährt *gefahren | train bus ship
arrive | an-kommen - *gekommen | train bus ship plane
begin began begun | beginnen - begonnen | film concert lesson party
get_up got got | auf-stehen - *gestanden |
come_back came come | zurück-kommen - *gekommen |
"""
