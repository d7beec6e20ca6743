"""The words of the built-in sample corpus: tables only, read by ``sample.py``.

In every table an underscore stands for a space inside one entry.
"""

# english[/plural]  german  gender (m, f, n; mn = n-declension; p = plural only)  german plural
NOUNS = """
man/men Mann m Männer, woman/women Frau f Frauen, teacher Lehrer m Lehrer, doctor Arzt m Ärzte,
student Student mn Studenten, tourist Tourist mn Touristen, neighbour Nachbar mn Nachbarn,
colleague Kollege mn Kollegen, guest Gast m Gäste, farmer Bauer mn Bauern, baker Bäcker m Bäcker,
policeman/policemen Polizist mn Polizisten, pilot Pilot mn Piloten, lawyer Anwalt m Anwälte,
actress/actresses Schauspielerin f Schauspielerinnen, waitress/waitresses Kellnerin f Kellnerinnen,
saleswoman/saleswomen Verkäuferin f Verkäuferinnen, nurse Krankenschwester f Krankenschwestern,
lady Dame f Damen, gardener Gärtner m Gärtner, professor Professor m Professoren,
engineer Ingenieur m Ingenieure,
boy Junge mn Jungen, girl Mädchen n Mädchen, child/children Kind n Kinder,
mother Mutter f Mütter, father Vater m Väter, brother Bruder m Brüder,
sister Schwester f Schwestern, uncle Onkel m Onkel, aunt Tante f Tanten,
grandmother Großmutter f Großmütter,
grandfather Großvater m Großväter, son Sohn m Söhne, daughter Tochter f Töchter,
friend Freund m Freunde, boss Chef m Chefs, parents/parents - p Eltern,
grandparents/grandparents - p Großeltern,
apple Apfel m Äpfel, orange Orange f Orangen, banana Banane f Bananen, egg Ei n Eier,
tomato/tomatoes Tomate f Tomaten, pear Birne f Birnen, potato/potatoes Kartoffel f Kartoffeln,
cake Kuchen m Kuchen, soup Suppe f Suppen, salad Salat m Salate, pizza Pizza f Pizzas,
bread Brot n -, cheese Käse m -, fish Fisch m -, meat Fleisch n -, butter Butter f -,
fruit Obst n -, rice Reis m -, chocolate Schokolade f -, ice_cream Eis n -,
water Wasser n -, milk Milch f -, lemonade Limonade f -, apple_juice Apfelsaft m -, beer Bier n -,
coffee Kaffee m -, tea Tee m -,
cup_of_coffee/cups_of_coffee Tasse_Kaffee f Tassen_Kaffee,
cup_of_tea/cups_of_tea Tasse_Tee f Tassen_Tee,
glass_of_water/glasses_of_water Glas_Wasser n Gläser_Wasser,
glass_of_milk/glasses_of_milk Glas_Milch n Gläser_Milch,
bottle_of_wine/bottles_of_wine Flasche_Wein f Flaschen_Wein,
piece_of_cake/pieces_of_cake Stück_Kuchen n Stücke_Kuchen,
book Buch n Bücher, newspaper Zeitung f Zeitungen, letter Brief m Briefe,
story Geschichte f Geschichten, magazine Zeitschrift f Zeitschriften, novel Roman m Romane,
poem Gedicht n Gedichte, text Text m Texte, postcard Postkarte f Postkarten,
email E-Mail f E-Mails, joke Witz m Witze, sentence Satz m Sätze, word Wort n Wörter,
question Frage f Fragen, problem Problem n Probleme, plan Plan m Pläne, film Film m Filme,
song Lied n Lieder, picture Bild n Bilder, photo Foto n Fotos, concert Konzert n Konzerte,
party Party f Partys, weekend Wochenende n Wochenenden, trip Reise f Reisen,
holidays/holidays - p Ferien, bill Rechnung f Rechnungen, lesson Unterricht m -,
shirt Hemd n Hemden, dress Kleid n Kleider, coat Mantel m Mäntel, jacket Jacke f Jacken,
skirt Rock m Röcke, hat Hut m Hüte, sweater Pullover m Pullover, blouse Bluse f Blusen,
scarf/scarves Schal m Schals, cap Mütze f Mützen, shoe Schuh m Schuhe,
key Schlüssel m Schlüssel, mobile_phone Handy n Handys, pencil Bleistift m Bleistifte,
umbrella Regenschirm m Regenschirme, bag Tasche f Taschen, knife/knives Messer n Messer,
spoon Löffel m Löffel, fork Gabel f Gabeln, bottle Flasche f Flaschen, glass Glas n Gläser,
cup Tasse f Tassen, lamp Lampe f Lampen, vase Vase f Vasen, plate Teller m Teller,
suitcase Koffer m Koffer, box Kiste f Kisten, basket Korb m Körbe, clock Uhr f Uhren,
table Tisch m Tische, chair Stuhl m Stühle, bed Bett n Betten, sofa Sofa n Sofas,
cupboard Schrank m Schränke, shelf/shelves Regal n Regale, desk Schreibtisch m Schreibtische,
armchair Sessel m Sessel, carpet Teppich m Teppiche, mirror Spiegel m Spiegel, wall Wand f Wände,
floor Boden m Böden, computer Computer m Computer, radio Radio n Radios,
television Fernseher m Fernseher, camera Kamera f Kameras, ball Ball m Bälle,
car Auto n Autos, bicycle Fahrrad n Fahrräder, motorbike Motorrad n Motorräder, boat Boot n Boote,
bus Bus m Busse, train Zug m Züge, plane Flugzeug n Flugzeuge, ship Schiff n Schiffe,
dog Hund m Hunde, cat Katze f Katzen, horse Pferd n Pferde, bird Vogel m Vögel, cow Kuh f Kühe,
mouse/mice Maus f Mäuse, sheep/sheep Schaf n Schafe, duck Ente f Enten, pig Schwein n Schweine,
bear Bär mn Bären, lion Löwe mn Löwen, elephant Elefant mn Elefanten, monkey Affe mn Affen,
flower Blume f Blumen, rose Rose f Rosen, tree Baum m Bäume, door Tür f Türen,
window Fenster n Fenster, room Zimmer n Zimmer, bathroom Badezimmer n Badezimmer,
house Haus n Häuser, flat Wohnung f Wohnungen, bridge Brücke f Brücken, tower Turm m Türme,
castle Schloss n Schlösser, church Kirche f Kirchen, museum Museum n Museen, hotel Hotel n Hotels,
restaurant Restaurant n Restaurants, school Schule f Schulen, shop Geschäft n Geschäfte,
library Bibliothek f Bibliotheken, river Fluss m Flüsse,
garden Garten m Gärten, park Park m Parks, city Stadt f Städte, village Dorf n Dörfer,
station Bahnhof m Bahnhöfe, cinema Kino n Kinos, theatre Theater n Theater, café Café n Cafés,
supermarket Supermarkt m Supermärkte, market Markt m Märkte, bakery Bäckerei f Bäckereien,
hospital Krankenhaus n Krankenhäuser, office Büro n Büros, kitchen Küche f Küchen,
living_room Wohnzimmer n Wohnzimmer, lake See m Seen, beach Strand m Strände, forest Wald m Wälder,
bus_stop Bushaltestelle f Bushaltestellen, airport Flughafen m Flughäfen,
university Universität f Universitäten, zoo Zoo m Zoos, balcony Balkon m Balkone,
swimming_pool Schwimmbad n Schwimmbäder, garage Garage f Garagen, factory Fabrik f Fabriken,
mountains/mountains - p Berge, post_office Post f -, sea Meer n -,
music Musik f -, German Deutsch n -, English Englisch n -, French Französisch n -,
Spanish Spanisch n -, Italian Italienisch n -, Polish Polnisch n -,
time Zeit f -, money Geld n -
"""

# english  german stem  german comparative (- where none is used)
ADJECTIVES = """
new neu neuer, old alt älter, small klein kleiner, big groß größer, beautiful schön schöner,
cheap billig billiger, expensive teuer teurer, heavy schwer schwerer, comfortable bequem bequemer,
long lang länger, short kurz kürzer, interesting interessant interessanter,
boring langweilig langweiliger, funny lustig lustiger, sad traurig -, fresh frisch frischer,
good gut besser, warm warm wärmer, cold kalt kälter, hot heiß heißer, young jung jünger,
friendly freundlich freundlicher, famous berühmt berühmter, nice nett netter, clever klug klüger,
polite höflich höflicher, tall groß größer, fast schnell schneller, modern modern moderner,
red rot -, blue blau -, green grün -, black schwarz -, white weiß -, yellow gelb -, brown braun -,
grey grau -, strong stark stärker, sweet süß süßer, difficult schwierig schwieriger,
important wichtig wichtiger, quiet ruhig ruhiger
"""

# class: nouns | adjectives that go with all of them
CLASSES = {
    "person": (
        "man woman teacher doctor student tourist neighbour colleague guest farmer baker policeman "
        "pilot lawyer actress waitress saleswoman nurse lady gardener professor engineer",
        "young old friendly famous nice clever polite tall",
    ),
    "child": ("boy girl child", "small nice clever polite"),
    "kin": (
        "mother father brother sister uncle aunt grandmother grandfather son daughter friend boss "
        "parents grandparents neighbour",
        "",
    ),
    "animal": (
        "dog cat horse bird cow mouse sheep duck pig bear lion elephant monkey",
        "small big old young",
    ),
    "farm": ("dog cat horse cow sheep duck pig", "small big old young"),
    "pet": ("dog cat horse bird", "small big old young black white brown"),
    "fruit": ("apple orange banana egg tomato pear potato", "fresh big small"),
    "snack": ("apple orange banana egg tomato pear piece_of_cake", ""),
    "dish": ("cake soup salad pizza", "small big good"),
    "pot": ("soup egg fish meat rice", ""),
    "baked": ("cake pizza bread", "good"),
    "grocery": ("bread cheese fish meat butter fruit", "fresh good cheap"),
    "staple": ("rice chocolate ice_cream bread cheese fish meat", ""),
    "cold drink": ("water milk lemonade apple_juice beer", "cold"),
    "hot drink": ("coffee tea", "hot strong"),
    "cup": (
        "cup_of_coffee cup_of_tea glass_of_water glass_of_milk bottle_of_wine piece_of_cake",
        "",
    ),
    "drinkable": ("cup_of_coffee cup_of_tea glass_of_water glass_of_milk bottle_of_wine", ""),
    "text": (
        "book newspaper letter story magazine novel poem text",
        "interesting boring new old long short",
    ),
    "book": ("book newspaper magazine novel", "interesting boring new old"),
    "script": ("letter postcard poem story novel email text", "long short funny"),
    "mail": ("letter postcard email photo", "long short beautiful"),
    "speech": ("story joke", "funny short new"),
    "topic": ("book film plan concert trip problem story", "new interesting long"),
    "hard": ("question sentence word text problem poem", "difficult long short"),
    "show": ("film concert", "interesting boring new funny long"),
    "song": ("song", "beautiful new old sad funny short"),
    "joy": ("weekend holidays concert party trip", ""),
    "clothes": (
        "shirt dress coat jacket skirt hat sweater blouse scarf cap",
        "new old red blue green black white grey brown yellow beautiful warm expensive cheap",
    ),
    "lying": (
        "book newspaper letter key mobile_phone pencil umbrella knife spoon fork photo postcard",
        "new old small big",
    ),
    "standing": ("bottle glass cup lamp vase plate suitcase box basket", "new old small big"),
    "hanging": ("picture mirror clock photo", "new old small big"),
    "lost": (
        "key mobile_phone umbrella bag hat camera ball suitcase letter photo",
        "new old small big",
    ),
    "gift": ("book clock ball camera vase lamp bag picture flower", "new small beautiful"),
    "useful": ("bicycle book umbrella camera suitcase computer", "new old small big"),
    "luggage": ("suitcase bag box basket", "heavy small big old"),
    "furniture": (
        "table chair bed sofa cupboard shelf desk armchair carpet lamp mirror",
        "new old big small beautiful expensive cheap",
    ),
    "seat": ("chair bed sofa armchair", "comfortable new old big small"),
    "device": ("lamp radio computer television", "new old small"),
    "broken": ("car bicycle motorbike clock lamp computer radio boat camera", "old new small"),
    "vehicle": ("car bicycle motorbike boat", "new old fast expensive cheap red blue black"),
    "big vehicle": ("car bus train ship plane", "new old fast big"),
    "transport": ("bus train plane ship", ""),
    "washable": ("car dress shirt blouse sweater bicycle", "new old red blue green white"),
    "opening": ("door window suitcase cupboard box bottle", "old big small"),
    "closing": ("door window suitcase cupboard", "old big small"),
    "room": ("room kitchen bathroom living_room garage flat", ""),
    "building": (
        "house bridge tower castle church museum hotel restaurant school",
        "new old big small modern beautiful",
    ),
    "sight": ("castle museum church zoo tower", "old famous beautiful big"),
    "home": ("house flat", "big small old new modern expensive quiet"),
    "structure": ("house bridge boat tower", "new big small modern"),
    "plant": ("flower tree rose", "beautiful small big"),
    "flower": ("flower rose", "red white yellow beautiful"),
    "artwork": ("picture flower house cat horse", "beautiful big small"),
    "music": ("music", ""),
    "language": ("German English French Spanish Italian Polish", ""),
    "surface": ("table bed sofa chair desk cupboard armchair", ""),
    "wild": ("bear lion elephant monkey bird", "small big old young"),
    "parlour": ("table sofa armchair carpet lamp mirror shelf", "new old big small beautiful"),
    "bus": ("bus", ""),
    "train": ("train", ""),
    "plane": ("plane", ""),
    "means": ("time money", ""),
    "film": ("film", "interesting boring new funny long sad"),
    "bill": ("bill", ""),
    "unisex": (
        "shirt coat jacket hat sweater scarf cap",
        "new old red blue green black white grey brown yellow warm",
    ),
    "warm clothes": ("coat jacket sweater scarf cap", ""),
    "profession": (
        "teacher doctor farmer baker pilot lawyer gardener engineer student professor",
        "",
    ),
}

MALE_NAMES = ("Paul", "Peter", "Leon", "David", "Thomas", "Felix", "Jonas", "Stefan")
FEMALE_NAMES = ("Anna", "Maria", "Julia", "Lena", "Laura", "Emma", "Sophie", "Clara")
NUMBERS = (
    "two zwei, three drei, four vier, five fünf, six sechs, seven sieben, eight acht, "
    "nine neun, ten zehn, eleven elf, twelve zwölf"
)

# key | english forms | german infinitive (prefix-verb), 3rd person, participle; "-" is regular and
# "*" takes sein | government (dat, dat+acc or a preposition with the accusative) | objects |
# complements | places | manners | flags: s stative (present only), g no progressive, t past only,
# h habitual, n only as the effect of a state, l reaches back years, i imperative, p passive
# An object class may name its determiner: class+the, class+my.
FRAMES = """
read | read read read | lesen liest gelesen | | text | | calm | slowly | iph
write | write wrote written | schreiben - geschrieben | | script | | desk | quickly | ih
buy food | buy bought bought | kaufen | | fruit, grocery, cold drink | | food shop | | ih
buy | buy bought bought | kaufen | | clothes, clothes, furniture, vehicle, book | | | | il
sell | sell sold sold | verkaufen - verkauft | | vehicle, furniture | | | | gl
eat | eat ate eaten | essen isst gegessen | | snack, dish, staple | | meal | | ih
drink | drink drank drunk | trinken - getrunken | | drinkable, cold drink, hot drink | | meal | | ih
cook | cook | kochen | | pot | | stove | | iph
bake | bake | backen backt gebacken | | baked | | stove | | iph
see | see saw seen | sehen sieht gesehen | | people, building, pet | | outside | | glt
see wild | see saw seen | sehen sieht gesehen | | wild | | wilderness | | glt
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
wear | wear wore worn | tragen trägt getragen | | unisex | | | | g
carry | carry | tragen trägt getragen | | luggage+the | carry | | slowly carefully | i
put on | put_on put put | an-ziehen - gezogen | | unisex+my | | | quickly | i
open | open | öffnen | | opening+the | | | slowly quietly carefully | ip
close | close | schließen - geschlossen | | closing+the | | | slowly quietly carefully | ip
repair | repair | reparieren - repariert | | broken+the | | workshop | | ip
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
wait for bus | wait_for | warten | auf | bus+the | | bus stop | | h
wait for train | wait_for | warten | auf | train+the | | station | | h
wait for plane | wait_for | warten | auf | plane+the | | airport | | h
wait for | wait_for | warten | auf | people | | rendezvous | | ih
think of | think_of thought thought | denken - gedacht | an | people | | | | s
sleep | sleep slept slept | schlafen schläft geschlafen | | | | rest | well | h
work | work | arbeiten | | | | work | hard alone together | h
swim | swim swam swum | schwimmen - *geschwommen | | | water | | together slowly | h
laugh | laugh | lachen | | | | | loudly | gh
cry | cry | weinen | | | | rest | quietly loudly | n
go | go went gone | gehen - *gegangen | | | destination | | together alone | ih
go by | go went gone | fahren fährt *gefahren | | | far | | vehicles | glh
fly | fly flew flown | fliegen - *geflogen | | | far | | | gl
travel | travel | reisen - *gereist | | | far | | together alone | glh
run | run ran run | laufen läuft *gelaufen | | | through | | quickly together slowly | ih
hike | hike | wandern - *gewandert | | | trail | | together alone | h
stay | stay | bleiben - *geblieben | | | stay | | | i
come home | come came come | kommen - *gekommen | | | home | | early late | gh
arrive | arrive | an-kommen - *gekommen | | | | stop | | g
come back | come_back came come | zurück-kommen - *gekommen | | | | | | g
come along | come_along came come | mit-kommen - *gekommen | | | | | | g
do the shopping | do_the_shopping did done | ein-kaufen | | | | food shop | together | h
watch television | watch_television | fern-sehen sieht gesehen | | | | indoors | together | gh
feed | feed fed fed | füttern | | farm+the | | farm | | iph
paint | paint | malen | | artwork | | calm | carefully | ih
draw | draw drew drawn | zeichnen | | artwork | | calm | quickly carefully | ih
build | build built built | bauen | | structure | | | | glp
plant | plant | pflanzen | | plant | | garden | | ip
photograph | photograph | fotografieren - fotografiert | | building, flower | | outside | | ph
photograph wild | photograph | fotografieren - fotografiert | | wild | | wilderness | | h
bed | go went gone | gehen - *gegangen | | | bed | | early late | gn
go home | go went gone | gehen - *gegangen | | | home | | early late quickly | gn
doctor | go went gone | gehen - *gegangen | | | doctor | | | gn
restaurant | go went gone | gehen - *gegangen | | | restaurant | | | gn
dress warmly | put_on put put | an-ziehen - gezogen | | warm clothes+my | | | | gn
"""

MANNERS = {
    "slowly": "langsam",
    "quickly": "schnell",
    "quietly": "leise",
    "loudly": "laut",
    "carefully": "vorsichtig",
    "well": "gut",
    "hard": "fleißig",
    "together": "zusammen",
    "alone": "allein",
    "early": "früh",
    "late": "spät",
    "by train": "mit dem Zug",
    "by bus": "mit dem Bus",
    "by car": "mit dem Auto",
    "by ship": "mit dem Schiff",
}

# english noun | english and german "where" prepositions | "where to" prepositions and case
PLACES = """
garden | in in | into in+a
park | in in | to in+a
city | in in | to in+a
village | in in | to in+a
station | at an | to zu+d
library | in in | to in+a
museum | in in | to in+a
cinema | at in | to in+a
theatre | at in | to in+a
restaurant | in in | to in+a
café | in in | to in+a
supermarket | at in | to zu+d
market | at auf | to zu+d
bakery | at in | to zu+d
post_office | at auf | to zu+d
hospital | in in | to in+a
hotel | in in | to in+a
office | in in | to in+a
kitchen | in in | into in+a
living_room | in in | into in+a
lake | at an | to zu+d
beach | on an | to zu+d
sea | by an | to an+a
forest | in in | into in+a
bus_stop | at an | to zu+d
airport | at an | to zu+d
university | at an | to zu+d
zoo | in in | to in+a
balcony | on auf | onto auf+a
swimming_pool | in in | to in+a
garage | in in | into in+a
mountains | in in | to in+a
factory | in in | to in+a
river | in in | to zu+d
"""

PLACE_GROUPS = {
    "calm": "at_home kitchen garden living_room balcony park",
    "desk": "at_home kitchen office library café",
    "food shop": "supermarket market city",
    "meal": "at_home kitchen garden restaurant café balcony",
    "stove": "at_home kitchen",
    "outside": "city village",
    "rendezvous": "park café restaurant city station library university",
    "chores": "kitchen garden office at_home",
    "street": "park city garden station at_school",
    "workshop": "garage",
    "stage": "at_home living_room theatre garden",
    "cinema": "cinema at_home",
    "play": "garden park at_school",
    "study": "at_school at_home library university",
    "stop": "station airport bus_stop",
    "rest": "at_home garden hotel living_room",
    "work": "office garden hospital factory at_home hotel supermarket",
    "bus stop": "bus_stop",
    "station": "station",
    "airport": "airport",
    "indoors": "at_home living_room hotel",
    "wilderness": "zoo",
    "farm": "garden village",
    "garden": "garden park",
}

# fixed complements by group: english = german
COMPLEMENTS = {
    "game": "football=Fußball, tennis=Tennis, chess=Schach, cards=Karten",
    "instrument": "the piano=Klavier, the guitar=Gitarre, the violin=Geige",
    "companion": "with the dog=mit dem Hund, with the cat=mit der Katze, "
    "with the ball=mit dem Ball, with the children=mit den Kindern",
    "carry": "into the house=ins Haus, to the station=zum Bahnhof, to the car=zum Auto, "
    "into the kitchen=in die Küche, into the flat=in die Wohnung",
    "from": "from the station=vom Bahnhof, from school=von der Schule, from the hotel=vom Hotel, "
    "from the airport=vom Flughafen, from the party=von der Party",
    "far": "to Berlin=nach Berlin, to Munich=nach München, to Vienna=nach Wien, "
    "to Paris=nach Paris, to Hamburg=nach Hamburg, to Cologne=nach Köln, to Italy=nach Italien, "
    "to France=nach Frankreich, to Spain=nach Spanien, to Poland=nach Polen, "
    "to Switzerland=in die Schweiz, to Turkey=in die Türkei, to Austria=nach Österreich, "
    "to England=nach England",
    "through": "through the park=durch den Park, through the forest=durch den Wald, "
    "through the city=durch die Stadt, through the garden=durch den Garten",
    "water": "in the lake=im See, in the sea=im Meer, in the river=im Fluss, "
    "in the swimming pool=im Schwimmbad",
    "trail": "through the forest=durch den Wald, around the lake=um den See, "
    "to the village=ins Dorf, through the mountains=durch die Berge",
    "stay": "at home=zu Hause, in bed=im Bett, in the hotel=im Hotel",
    "home": "home=nach Hause",
    "bed": "to bed=ins Bett",
    "doctor": "to the doctor=zum Arzt",
    "restaurant": "to the restaurant=ins Restaurant, to the café=ins Café",
}
DESTINATIONS = (
    "park city station library museum cinema theatre restaurant café supermarket market bakery "
    "hospital office lake beach airport university zoo swimming_pool post_office"
)
CITIES = (
    "Berlin=Berlin, Munich=München, Vienna=Wien, Hamburg=Hamburg, Cologne=Köln, Zurich=Zürich, "
    "Paris=Paris, London=London, Rome=Rom, Prague=Prag, Dresden=Dresden"
)
COUNTRIES = (
    "Germany=Deutschland, Austria=Österreich, Switzerland=der_Schweiz, France=Frankreich, "
    "Italy=Italien, Spain=Spanien, Poland=Polen, England=England, Sweden=Schweden, "
    "Turkey=der_Türkei, the_USA=den_USA"
)

# tense: english = german; FRONTED may not hold the entries marked with "!"
TIMES = {
    "present": "every day=jeden Tag, every morning=jeden Morgen, every evening=jeden Abend, "
    "on Sundays=sonntags, on Mondays=montags, on Fridays=freitags, in summer=im Sommer, "
    "in winter=im Winter, in the evening=am Abend, in the afternoon=am Nachmittag, "
    "at the weekend=am Wochenende",
    "progressive": "right now=gerade!, at the moment=im Moment, today=heute",
    "past": "yesterday=gestern, yesterday evening=gestern Abend, on Monday=am Montag, "
    "on Tuesday=am Dienstag, on Wednesday=am Mittwoch, on Thursday=am Donnerstag, "
    "on Saturday=am Samstag, this morning=heute Morgen, two days ago=vor zwei Tagen, "
    "three days ago=vor drei Tagen, a week ago=vor einer Woche, last week=letzte Woche",
    "long past": "last year=letztes Jahr, last month=letzten Monat, last summer=letzten Sommer, "
    "two years ago=vor zwei Jahren, a month ago=vor einem Monat, in May=im Mai, "
    "in August=im August, in spring=im Frühling",
    "future": "tomorrow=morgen, tomorrow morning=morgen früh, tomorrow evening=morgen Abend, "
    "next week=nächste Woche, on Friday=am Freitag, on Sunday=am Sonntag, tonight=heute Abend, "
    "soon=bald, in an hour=in einer Stunde, in two days=in zwei Tagen, next month=nächsten Monat",
    "modal": "today=heute, tomorrow=morgen, tomorrow morning=morgen früh, tonight=heute Abend, "
    "on Friday=am Freitag, at the weekend=am Wochenende, next week=nächste Woche, now=jetzt",
}
FREQUENCIES = (
    "often=oft, always=immer, sometimes=manchmal, never=nie, usually=meistens, rarely=selten"
)

# state of a person: english = german | frames that follow from it | frames that it prevents
STATES = """
tired=müde | bed; go home; stay | dance; work; learn; swim; come along; game; read
ill=krank | stay; doctor; call | work; come along; swim; visit; go; hike; game
hungry=hungrig | eat; cook; bake; restaurant | sleep; work; wait for
thirsty=durstig | drink | run; wait for; work
happy=glücklich | sing; dance; laugh | cry; stay
sad=traurig | cry; go home; think of; call | laugh; dance; sing
busy=beschäftigt | | come along; visit; meet; go; read; help
"""
