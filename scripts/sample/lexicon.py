"""Tables of words of both languages: nouns, adjectives, names, places and times.

``woman/women Frau f Frauen`` is one noun. An underscore stands for a space inside an entry, and in
the tables of pairs ``yesterday=gestern`` is English=German.
"""

# english[/plural]  german  gender (m, f, n; mn: n-declension; p: plural only)  german plural or -
NOUNS = """

man/men Mann m Männer, woman/women Frau f Frauen, teacher Lehrer m Lehrer, doctor Arzt m Ärzte,
student Student mn Studenten, tourist Tourist mn Touristen, neighbour Nachbar mn Nachbarn,
colleague Kollege mn Kollegen, guest Gast m Gäste, farmer Bauer mn Bauern, baker Bäcker m Bäcker,
policeman/policemen Polizist mn Polizisten, pilot Pilot mn Piloten, lawyer Anwalt m Anwälte,
actress/actresses Schauspielerin f Schauspielerinnen, waitress/waitresses Kellnerin f Kellnerinnen,
saleswoman/saleswomen Verkäuferin f Verkäuferinnen, nurse Krankenschwester f Krankenschwestern,
lady Dame f Damen, gardener Gärtner m Gärtner, professor Professor m Professoren,
engineer Ingenieur m Ingenieure, boy Junge mn Jungen, girl Mädchen n Mädchen,
child/children Kind n Kinder, mother Mutter f Mütter, father Vater m Väter,
brother Bruder m Brüder, sister Schwester f Schwestern, uncle Onkel m Onkel, aunt Tante f Tanten,
grandmother Großmutter f Großmütter, grandfather Großvater m Großväter, son Sohn m Söhne,
daughter Tochter f Töchter, friend Freund m Freunde, boss Chef m Chefs, parents/parents - p Eltern,
grandparents/grandparents - p Großeltern, apple Apfel m Äpfel, orange Orange f Orangen,
banana Banane f Bananen, egg Ei n Eier, tomato/tomatoes Tomate f Tomaten, pear Birne f Birnen,
potato/potatoes Kartoffel f Kartoffeln, cake Kuchen m Kuchen, soup Suppe f Suppen,
salad Salat m Salate, pizza Pizza f Pizzas, bread Brot n -, cheese Käse m -, fish Fisch m -,
meat Fleisch n -, butter Butter f -, fruit Obst n -, rice Reis m -, chocolate Schokolade f -,
ice_cream Eis n -, water Wasser n -, milk Milch f -, lemonade Limonade f -,
apple_juice Apfelsaft m -, beer Bier n -, coffee Kaffee m -, tea Tee m -,
cup_of_coffee/cups_of_coffee Tasse_Kaffee f Tassen_Kaffee,
cup_of_tea/cups_of_tea Tasse_Tee f Tassen_Tee,
glass_of_water/glasses_of_water Glas_Wasser n Gläser_Wasser,
glass_of_milk/glasses_of_milk Glas_Milch n Gläser_Milch,
bottle_of_wine/bottles_of_wine Flasche_Wein f Flaschen_Wein,
piece_of_cake/pieces_of_cake Stück_Kuchen n Stücke_Kuchen, book Buch n Bücher,
newspaper Zeitung f Zeitungen, letter Brief m Briefe, story Geschichte f Geschichten,
magazine Zeitschrift f Zeitschriften, novel Roman m Romane, poem Gedicht n Gedichte,
text Text m Texte, postcard Postkarte f Postkarten, email E-Mail f E-Mails, joke Witz m Witze,
sentence Satz m Sätze, word Wort n Wörter, question Frage f Fragen, problem Problem n Probleme,
plan Plan m Pläne, film Film m Filme, song Lied n Lieder, picture Bild n Bilder,
photo Foto n Fotos, concert Konzert n Konzerte, party Party f Partys,
weekend Wochenende n Wochenenden, trip Reise f Reisen, holidays/holidays - p Ferien,
bill Rechnung f Rechnungen, lesson Unterricht m -, shirt Hemd n Hemden, dress Kleid n Kleider,
coat Mantel m Mäntel, jacket Jacke f Jacken, skirt Rock m Röcke, hat Hut m Hüte,
sweater Pullover m Pullover, blouse Bluse f Blusen, scarf/scarves Schal m Schals,
cap Mütze f Mützen, key Schlüssel m Schlüssel, mobile_phone Handy n Handys,
pencil Bleistift m Bleistifte, umbrella Regenschirm m Regenschirme, bag Tasche f Taschen,
knife/knives Messer n Messer, spoon Löffel m Löffel, fork Gabel f Gabeln,
bottle Flasche f Flaschen, glass Glas n Gläser, cup Tasse f Tassen, lamp Lampe f Lampen,
vase Vase f Vasen, plate Teller m Teller, suitcase Koffer m Koffer, box Kiste f Kisten,
basket Korb m Körbe, clock Uhr f Uhren, table Tisch m Tische, chair Stuhl m Stühle,
bed Bett n Betten, sofa Sofa n Sofas, cupboard Schrank m Schränke, shelf/shelves Regal n Regale,
desk Schreibtisch m Schreibtische, armchair Sessel m Sessel, carpet Teppich m Teppiche,
mirror Spiegel m Spiegel, computer Computer m Computer, radio Radio n Radios,
television Fernseher m Fernseher, camera Kamera f Kameras, ball Ball m Bälle, car Auto n Autos,
bicycle Fahrrad n Fahrräder, motorbike Motorrad n Motorräder, boat Boot n Boote, bus Bus m Busse,
train Zug m Züge, plane Flugzeug n Flugzeuge, ship Schiff n Schiffe, dog Hund m Hunde,
cat Katze f Katzen, horse Pferd n Pferde, bird Vogel m Vögel, cow Kuh f Kühe,
mouse/mice Maus f Mäuse, sheep/sheep Schaf n Schafe, duck Ente f Enten, pig Schwein n Schweine,
bear Bär mn Bären, lion Löwe mn Löwen, elephant Elefant mn Elefanten, monkey Affe mn Affen,
flower Blume f Blumen, rose Rose f Rosen, tree Baum m Bäume, door Tür f Türen,
window Fenster n Fenster, room Zimmer n Zimmer, bathroom Badezimmer n Badezimmer,
house Haus n Häuser, flat Wohnung f Wohnungen, bridge Brücke f Brücken, tower Turm m Türme,
castle Schloss n Schlösser, church Kirche f Kirchen, museum Museum n Museen, hotel Hotel n Hotels,
restaurant Restaurant n Restaurants, school Schule f Schulen, library Bibliothek f Bibliotheken,
river Fluss m Flüsse, garden Garten m Gärten, park Park m Parks, city Stadt f Städte,
village Dorf n Dörfer, station Bahnhof m Bahnhöfe, cinema Kino n Kinos, theatre Theater n Theater,
café Café n Cafés, supermarket Supermarkt m Supermärkte, market Markt m Märkte,
bakery Bäckerei f Bäckereien, hospital Krankenhaus n Krankenhäuser, office Büro n Büros,
kitchen Küche f Küchen, living_room Wohnzimmer n Wohnzimmer, lake See m Seen,
beach Strand m Strände, forest Wald m Wälder, bus_stop Bushaltestelle f Bushaltestellen,
airport Flughafen m Flughäfen, university Universität f Universitäten, zoo Zoo m Zoos,
balcony Balkon m Balkone, swimming_pool Schwimmbad n Schwimmbäder, garage Garage f Garagen,
factory Fabrik f Fabriken, mountains/mountains - p Berge, post_office Post f -, sea Meer n -,
music Musik f -, German Deutsch n -, English Englisch n -, French Französisch n -,
Spanish Spanisch n -, Italian Italienisch n -, Polish Polnisch n -, time Zeit f -, money Geld n -,
weather Wetter n -, sun Sonne f -
"""

# english  german stem  german comparative or -
ADJECTIVES = """

new neu neuer, old alt älter, small klein kleiner, big groß größer, beautiful schön schöner,
cheap billig billiger, expensive teuer teurer, heavy schwer schwerer, long lang länger,
short kurz kürzer, interesting interessant interessanter, boring langweilig langweiliger,
funny lustig lustiger, sad traurig -, fresh frisch frischer, good gut besser, warm warm wärmer,
cold kalt kälter, hot heiß heißer, young jung jünger, friendly freundlich freundlicher,
famous berühmt berühmter, nice nett netter, clever klug klüger, polite höflich höflicher,
tall groß größer, fast schnell schneller, modern modern moderner, red rot -, blue blau -,
green grün -, black schwarz -, white weiß -, yellow gelb -, brown braun -, grey grau -,
strong stark stärker, difficult schwierig schwieriger, quiet ruhig ruhiger
"""

# class: nouns | adjectives that go with all of them
CLASSES = """
person: man woman teacher doctor student tourist neighbour colleague guest farmer baker policeman \
pilot lawyer actress waitress saleswoman nurse lady gardener professor engineer \
| young old friendly famous nice clever polite tall
child: boy girl child | small nice clever polite
kin: mother father brother sister uncle aunt grandmother grandfather son daughter friend boss \
parents grandparents neighbour
young kin: brother sister son daughter
profession: teacher doctor farmer baker pilot lawyer gardener engineer student professor
animal: dog cat horse bird cow mouse sheep duck pig bear lion elephant monkey | small big old young
farm: dog cat horse cow sheep duck pig | small big old young
pet: dog cat horse bird | small big old young black white brown
wild: bear lion elephant monkey bird | small big old young
fruit: apple orange banana egg tomato pear potato | fresh big small
snack: apple orange banana egg tomato pear piece_of_cake
dish: cake soup salad pizza | small big good
pot: soup egg fish meat rice
baked: cake pizza bread | good
grocery: bread cheese fish meat butter fruit | fresh good cheap
staple: rice chocolate ice_cream bread cheese fish meat
cold drink: water milk lemonade apple_juice beer | cold
hot drink: coffee tea | hot strong
cup: cup_of_coffee cup_of_tea glass_of_water glass_of_milk bottle_of_wine
text: book newspaper letter story magazine novel poem text | interesting boring new old long short
book: book newspaper magazine novel | interesting boring new old
script: letter postcard poem story novel email text | long short funny
mail: letter postcard email photo | long short beautiful
speech: story joke | funny short new
topic: book film plan concert trip problem story | new interesting long
hard: question sentence word text problem poem | difficult long short
show: film concert | interesting boring new funny long
film: film | interesting boring new funny long sad
song: song | beautiful new old sad funny short
joy: weekend holidays concert party trip
clothes: shirt dress coat jacket skirt hat sweater blouse scarf cap \
| new old red blue green black white grey brown yellow beautiful warm expensive cheap
unisex: shirt coat jacket hat sweater scarf cap \
| new old red blue green black white grey brown yellow warm
warm clothes: coat jacket sweater scarf cap
lying: book newspaper letter key mobile_phone pencil umbrella knife spoon fork photo postcard \
| new old small big
standing: bottle glass cup lamp vase plate suitcase box basket | new old small big
hanging: picture mirror clock photo | new old small big
lost: key mobile_phone umbrella bag hat camera ball suitcase letter photo | new old small big
gift: book clock ball camera vase lamp bag picture flower | new small beautiful
useful: bicycle book umbrella camera suitcase computer | new old small big
luggage: suitcase bag box basket | heavy small big old
furniture: table chair bed sofa cupboard shelf desk armchair carpet lamp mirror \
| new old big small beautiful expensive cheap
parlour: table sofa armchair carpet lamp mirror shelf | new old big small beautiful
device: lamp radio computer television | new old small
broken: car bicycle motorbike clock lamp computer radio boat camera | old new small
vehicle: car bicycle motorbike boat | new old fast expensive cheap red blue black
big vehicle: car bus train ship plane | new old fast big
washable: car dress shirt blouse sweater bicycle | new old red blue green white
opening: door window suitcase cupboard | old big small
room: room kitchen bathroom living_room garage flat
building: house bridge tower castle church museum hotel restaurant school \
| new old big small modern beautiful
sight: castle museum church zoo tower | old famous beautiful big
home: house flat | big small old new modern expensive quiet
structure: house bridge boat tower | new big small modern
plant: flower tree rose | beautiful small big
flower: flower rose | red white yellow beautiful
artwork: picture flower house cat horse | beautiful big small
language: German English French Spanish Italian Polish
means: time money
"""

MALE_NAMES = "Paul Peter Leon David Thomas Felix Jonas Stefan"
FEMALE_NAMES = "Anna Maria Julia Lena Laura Emma Sophie Clara"
NUMBERS = (
    "two=zwei, three=drei, four=vier, five=fünf, six=sechs, seven=sieben, eight=acht, nine=neun, "
    "ten=zehn, eleven=elf, twelve=zwölf"
)

# english noun | where: english, german preposition | where to: the same, and the german case
PLACES = """

garden in in into in accusative, park in in to in accusative, city in in to in accusative,
village in in to in accusative, station at an to zu dative, library in in to in accusative,
museum in in to in accusative, cinema at in to in accusative, theatre at in to in accusative,
restaurant in in to in accusative, café in in to in accusative, supermarket at in to zu dative,
market at auf to zu dative, bakery at in to zu dative, post_office at auf to zu dative,
hospital in in to in accusative, hotel in in to in accusative, office in in to in accusative,
kitchen in in into in accusative, living_room in in into in accusative, lake at an to zu dative,
beach on an to zu dative, bus_stop at an to zu dative, airport at an to zu dative,
university at an to zu dative, zoo in in to in accusative, balcony on auf onto auf accusative,
swimming_pool in in to in accusative, garage in in into in accusative,
factory in in to in accusative
"""
PLACE_GROUPS = """
calm: at_home kitchen garden living_room balcony park
desk: at_home kitchen office library café
food shop: supermarket market city
meal: at_home kitchen garden restaurant café balcony
stove: at_home kitchen
outside: city village
rendezvous: park café restaurant city station library university
chores: kitchen garden office at_home
street: park city garden station at_school
stage: at_home living_room theatre garden
play: garden park at_school
study: at_school at_home library university
stop: station airport bus_stop
rest: at_home garden hotel living_room
work: office garden hospital factory at_home hotel supermarket
indoors: at_home living_room hotel
farm: garden village
destination: park city station library museum cinema theatre restaurant café supermarket market \
bakery hospital office lake beach airport university zoo swimming_pool post_office
"""
# the same for what stands or lies somewhere
SPOTS = (
    "table on auf, desk on auf, chair on auf, shelf on auf, bed next_to neben, sofa next_to neben, "
    "armchair next_to neben, cupboard next_to neben, table under unter, desk under unter"
)
CITIES = (
    "Berlin=Berlin, Munich=München, Vienna=Wien, Hamburg=Hamburg, Cologne=Köln, Zurich=Zürich, "
    "Paris=Paris, London=London, Rome=Rom, Prague=Prag, Dresden=Dresden"
)

# what a verb may be completed with
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
    "to Paris=nach Paris, to Hamburg=nach Hamburg, to Italy=nach Italien, to Spain=nach Spanien, "
    "to Poland=nach Polen, to Switzerland=in die Schweiz, to Turkey=in die Türkei",
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
}
MANNERS = (
    "slowly=langsam, quickly=schnell, quietly=leise, loudly=laut, carefully=vorsichtig, well=gut, "
    "hard=fleißig, together=zusammen, alone=allein, early=früh, late=spät"
)

# tense: when it happens; the modal verbs share one row
TIMES = {
    "present": "every day=jeden Tag, every morning=jeden Morgen, every evening=jeden Abend, "
    "on Sundays=sonntags, on Mondays=montags, on Fridays=freitags, in summer=im Sommer, "
    "in winter=im Winter, in the evening=am Abend, in the afternoon=am Nachmittag, "
    "at the weekend=am Wochenende",
    "progressive": "right now=gerade, at the moment=im Moment, today=heute",
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
# the same for what has an hour, too: "on Monday at seven o'clock"
DAYS = {
    "present": "on Sundays=sonntags, on Mondays=montags, on Fridays=freitags, every day=jeden Tag",
    "past": "yesterday=gestern, on Monday=am Montag, on Tuesday=am Dienstag, "
    "on Wednesday=am Mittwoch, on Thursday=am Donnerstag, on Saturday=am Samstag",
    "modal": "today=heute, tomorrow=morgen, on Friday=am Freitag, on Sunday=am Sonntag",
}
SPANS = "years=Jahren, months=Monaten, weeks=Wochen"
FREQUENCIES = (
    "often=oft, always=immer, sometimes=manchmal, never=nie, usually=meistens, rarely=selten"
)
