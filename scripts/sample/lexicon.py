"""Tables of words of both languages, and of what is done with what.

An underscore stands for a space, and ``yesterday=gestern`` is English=German.
"""

# class | adjectives for all its nouns | english[/plural] german gender german plural: genders are
#   m, f, n, p (plural only) and mw (weak masculine); "-" where no plural is used
NOUNS = """
person | old young nice friendly clever | man/men Mann m Männer, woman/women Frau f Frauen, \
    teacher Lehrer m Lehrer, doctor Arzt m Ärzte, student Student mw Studenten, \
    neighbour Nachbar mw Nachbarn, guest Gast m Gäste, farmer Bauer mw Bauern, \
    lawyer Anwalt m Anwälte, baker Bäcker m Bäcker, nurse Krankenschwester f Krankenschwestern, \
    waitress Kellnerin f Kellnerinnen, actress Schauspielerin f Schauspielerinnen, \
    tourist Tourist mw Touristen, engineer Ingenieur m Ingenieure
person | small nice clever | boy Junge mw Jungen, children Kinder p Kinder
relative | nice good clever | mother Mutter f -, father Vater m -, brother Bruder m Brüder, \
    sister Schwester f Schwestern, uncle Onkel m -, aunt Tante f -, grandmother Großmutter f -, \
    grandfather Großvater m -, son Sohn m Söhne, daughter Tochter f Töchter, \
    friend Freund m Freunde, boss Chef m -, parents Eltern p Eltern
animal | small big old young | dog Hund m Hunde, cat Katze f Katzen, horse Pferd n Pferde, \
    bird Vogel m Vögel, cow Kuh f Kühe, duck Ente f Enten, pig Schwein n Schweine
text | new old interesting boring | book Buch n Bücher, newspaper Zeitung f Zeitungen, \
    novel Roman m Romane
letter | long short interesting boring | letter Brief m Briefe, email E-Mail f E-Mails, \
    poem Gedicht n Gedichte, story Geschichte f Geschichten
snack | fresh big small | apple Apfel m Äpfel, orange Orange f Orangen, banana Banane f Bananen, \
    tomato Tomate f Tomaten, egg Ei n Eier
dish | big small good | soup Suppe f Suppen, salad Salat m Salate, cake Kuchen m Kuchen, \
    pizza Pizza f Pizzas
food | fresh good cheap | bread Brot n -, cheese Käse m -, fish Fisch m -, meat Fleisch n -, \
    fruit Obst n -
drink | fresh cold good | water Wasser n -, milk Milch f -, juice Saft m -, tea Tee m -, \
    coffee Kaffee m -
clothes | new old beautiful cheap expensive colour | dress Kleid n Kleider, shirt Hemd n Hemden, \
    coat Mantel m Mäntel, jacket Jacke f Jacken, hat Hut m Hüte, sweater Pullover m Pullover
thing | new old small big colour | bag Tasche f Taschen, key Schlüssel m Schlüssel, \
    umbrella Regenschirm m Regenschirme, ball Ball m Bälle, suitcase Koffer m Koffer, \
    glass Glas n Gläser, cup Tasse f Tassen, box Kiste f Kisten, knife/knives Messer n Messer
machine | new old small big cheap expensive | lamp Lampe f Lampen, camera Kamera f Kameras, \
    clock Uhr f Uhren, computer Computer m Computer, radio Radio n Radios, \
    television Fernseher m Fernseher
vehicle | new old fast cheap expensive colour | car Auto n Autos, bicycle Fahrrad n Fahrräder, \
    motorbike Motorrad n Motorräder, boat Boot n Boote
furniture | new old big small beautiful cheap expensive | table Tisch m Tische, \
    chair Stuhl m Stühle, bed Bett n Betten, sofa Sofa n Sofas, cupboard Schrank m Schränke, \
    carpet Teppich m Teppiche, mirror Spiegel m Spiegel, picture Bild n Bilder
building | new old big small modern beautiful | house Haus n Häuser, church Kirche f Kirchen, \
    castle Schloss n Schlösser, bridge Brücke f Brücken, tower Turm m Türme, \
    museum Museum n Museen, school Schule f Schulen
plant | small big beautiful | flower Blume f Blumen, rose Rose f Rosen, tree Baum m Bäume
room | small big | kitchen Küche f Küchen, bathroom Badezimmer n Badezimmer, \
    flat Wohnung f Wohnungen, door Tür f Türen, window Fenster n Fenster
show | new old long short beautiful sad | film Film m Filme, song Lied n Lieder
language | | German Deutsch n -, English Englisch n -, French Französisch n -
"""
ADJECTIVES = """
    new=neu, old=alt, small=klein, big=groß, beautiful=schön, cheap=billig, expensive=teuer,
    long=lang, short=kurz, interesting=interessant, boring=langweilig, sad=traurig, fresh=frisch,
    good=gut, cold=kalt, young=jung, friendly=freundlich, nice=nett, clever=klug, fast=schnell,
    modern=modern
"""
COLOURS = "red=rot, blue=blau, green=grün, black=schwarz, white=weiß, yellow=gelb"
ADVERBS = "when=wann, where=wo, why=warum"
LINKS = "that=dass, whether=ob, because=weil, although=obwohl, if=wenn"
NUMBERS = "two=zwei, three=drei, four=vier, five=fünf"
NAMES = {"he": "Paul Peter David Leon Tom Martin", "she": "Anna Maria Julia Laura Emma Clara"}
# subject, object, possessive | the same in German, the object in two cases | row of verb tables
PRONOUNS = """
    I me my | ich mich mir mein | 0
    you you your | du dich dir dein | 1
    he him his | er ihn ihm sein | 2
    she her her | sie sie ihr ihr | 2
    we us our | wir uns uns unser | 3
    they them their | sie sie ihnen ihr | 3
"""
# english base[ past] | german infinitive[ third person[ participle[ preterite]]]: a hyphen behind a
# separable prefix, "-" for a regular form, "*" before the participle of a verb with sein
MODALS = """
    will | werden
    can could | können kann - konnte
    should | sollten sollte
    have_to had | müssen muss - musste
    want_to wanted | wollen will - wollte
    would_like_to | möchten möchte
"""

# verb as above | what is done, and with what:
#   acc, dat, give (a person something) or auf: classes or nouns as objects; "a", "the" and "own"
#   are accusatives that have this determiner
#   to: further phrases that belong to the verb, at: where it is done, how: in which manner
VERBS = {
    # what one does again and again
    "habit": """
    read read | lesen liest gelesen | acc text letter | at kitchen home work | how slowly
    write wrote | schreiben - geschrieben | acc letter | at kitchen home work | how quickly
    eat ate | essen isst gegessen | acc snack dish food | at kitchen home
    drink drank | trinken - getrunken | acc drink | at kitchen home
    cook | kochen | acc soup egg fish meat | at kitchen | how quickly
    bake | backen backt gebacken | acc cake pizza bread | at kitchen
    buy bought | kaufen | acc snack food drink | at shop
    do_the_shopping did | ein-kaufen | at shop | how quickly alone
    visit | besuchen - besucht | acc people museum church castle
    call | an-rufen - gerufen | acc people
    meet met | treffen trifft getroffen | acc people | at town
    help | helfen hilft geholfen | dat people | at kitchen home work
    learn | lernen | acc language | at home work
    sing sang | singen - gesungen | acc song | at home | how quietly alone
    listen_to | hören | acc song | at home
    play | spielen | to game | at play
    play | spielen | to instrument | at home | how well quietly
    dance | tanzen | at home | how well alone
    sleep slept | schlafen schläft geschlafen | at home | how well
    work | arbeiten | at kitchen home work | how quietly alone
    swim swam | schwimmen - *geschwommen | at water | how slowly alone
    run ran | laufen läuft *gelaufen | at play | how quickly alone
    go went | gehen - *gegangen | to destination | how alone
    travel | fahren fährt *gefahren | to far | how by_train by_bus by_car
    feed fed | füttern | acc animal
    clean | putzen | the room | how quickly
    wash | waschen wäscht gewaschen | own coat shirt sweater car bicycle
    wait_for | warten | auf people | at town
    watch_television | fern-sehen sieht gesehen | at kitchen home
    """,
    "event": """
    buy bought | kaufen | acc clothes furniture machine vehicle text
    sell sold | verkaufen - verkauft | acc furniture machine vehicle house
    repair | reparieren - repariert | acc machine vehicle | how slowly carefully
    paint | malen | acc animal plant building | how carefully
    open | öffnen | the door window suitcase bag box | how slowly carefully
    close | schließen - geschlossen | the door window suitcase bag box | how quietly carefully
    turn_on | an-machen | the lamp radio computer television
    tidy_up | auf-räumen | the kitchen bathroom flat | how quickly alone
    carry | tragen trägt getragen | the suitcase bag box table chair | to into | how carefully
    collect | ab-holen | acc people | to from
    invite | ein-laden lädt geladen | acc people
    thank | danken | dat people
    answer | antworten | dat people | how quickly
    show showed | zeigen | give machine text picture
    give gave | geben gibt gegeben | give thing text lamp clock flower
    lend lent | leihen - geliehen | give vehicle text umbrella suitcase camera
    send sent | schicken | give letter
    look_for | suchen | acc thing dog cat | at kitchen home
    plant | pflanzen | acc plant | how carefully
    stay | bleiben - *geblieben | to stay
    come_back came | zurück-kommen - *gekommen | to from | how alone
    """,
    # what happens, told in the past
    "once": """
    find found | finden - gefunden | acc thing dog cat | at kitchen home town
    lose lost | verlieren - verloren | own thing camera | at shop town
    see saw | sehen sieht gesehen | acc people animal | at town
    """,
    # told in the present
    "state": """
    love | lieben | the people
    know | kennen - gekannt | the people song
    like | mögen mag gemocht | the people clothes show furniture
    need | brauchen | a machine furniture thing vehicle
    have had | haben hat gehabt | a dog cat horse machine vehicle house
    """,
}

PHRASES = {
    "kitchen": "at home=zu Hause, in the kitchen=in der Küche",
    "home": "in the garden=im Garten, in the hotel=im Hotel, on the balcony=auf dem Balkon",
    "work": "in the office=im Büro, in the library=in der Bibliothek, at school=in der Schule",
    "town": "in the park=im Park, in the city=in der Stadt, in the village=im Dorf, "
    "at the station=am Bahnhof, at the airport=am Flughafen, on the beach=am Strand",
    "shop": "at the supermarket=im Supermarkt, at the market=auf dem Markt",
    "play": "in the garden=im Garten, in the park=im Park, at school=in der Schule",
    "water": "in the lake=im See, in the sea=im Meer, in the river=im Fluss",
    "spot": "on the table=auf dem Tisch, under the bed=unter dem Bett, on the sofa=auf dem Sofa, "
    "next to the door=neben der Tür, under the chair=unter dem Stuhl",
    "destination": "to the park=in den Park, to the city=in die Stadt, to the station=zum Bahnhof, "
    "to the beach=zum Strand, into the garden=in den Garten, into the kitchen=in die Küche",
    "far": "to Berlin=nach Berlin, to Munich=nach München, to Italy=nach Italien, "
    "to Switzerland=in die Schweiz, to the sea=ans Meer",
    "into": "into the house=ins Haus, into the kitchen=in die Küche, to the car=zum Auto",
    "from": "from the station=vom Bahnhof, from the airport=vom Flughafen",
    "stay": "at home=zu Hause, in bed=im Bett, in the hotel=im Hotel",
    "game": "football=Fußball, tennis=Tennis, cards=Karten, chess=Schach",
    "instrument": "the piano=Klavier, the guitar=Gitarre, the violin=Geige",
}
MANNERS = (
    "slowly=langsam, quickly=schnell, quietly=leise, carefully=vorsichtig, well=gut, "
    "alone=allein, by train=mit dem Zug, by bus=mit dem Bus, by car=mit dem Auto"
)
TIMES = {
    "present": "every day=jeden Tag, every morning=jeden Morgen, every evening=jeden Abend, "
    "on Sundays=sonntags, on Mondays=montags, in summer=im Sommer, in winter=im Winter",
    "past": "yesterday=gestern, yesterday evening=gestern Abend, this morning=heute Morgen, "
    "on Monday=am Montag, on Thursday=am Donnerstag, last week=letzte Woche, "
    "two days ago=vor zwei Tagen, a week ago=vor einer Woche",
    "future": "today=heute, tonight=heute Abend, tomorrow=morgen, tomorrow evening=morgen Abend, "
    "on Friday=am Freitag, on Sunday=am Sonntag, next week=nächste Woche",
}
# how somebody feels | what this makes one do | what it prevents
STATES = """
    tired=müde | sleep, stay | dance, work, swim, run, read, cook
    ill=krank | sleep, stay | work, swim, run, dance, play, travel, help
    hungry=hungrig | eat, cook, bake | sleep, work, wait for
    thirsty=durstig | drink | sleep, run
    happy=glücklich | sing, dance | sleep
    sad=traurig | stay, call | sing, dance, play
    healthy=gesund | work, swim, run, dance | stay
"""
THINK = """
    know knew | wissen weiß gewusst
    think thought | glauben
    hope | hoffen
"""
PLANS = """
    try tried | versuchen - versucht
    promise | versprechen verspricht versprochen
    forget forgot | vergessen vergisst vergessen
"""
