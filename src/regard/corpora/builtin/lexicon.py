"""The words of the built-in corpus: English with their French, and how both inflect.

Every English word here has one French translation; where a word has two uses (`know`), rules tell them apart.
"""

from __future__ import annotations

from typing import NamedTuple

MASCULINE, FEMININE = 0, 1
SINGULAR, PLURAL = 0, 1

VOWELS = frozenset("aeiouyâàéèêëîïôûœAEIOUYÂÀÉÈÊËÎÏÔÛŒ")

# An h is silent unless its word begins with one of these; `huit` and `onze` refuse elision too.
ASPIRATED = (
    "haricot", "hache", "harpe", "haut", "héros", "hérisson", "hibou", "Hongrie", "huit", "onze", "homard", "haie",
)  # fmt: skip


def opens_with_vowel(word: str) -> bool:
    """Whether a French word makes the word before it elide: l'accord, l'homme, but le haricot."""
    first = word[0]
    return (first in VOWELS or first in "hH") and not word.startswith(ASPIRATED)


class Noun(NamedTuple):
    """A noun: English and French forms by number, one gender, one semantic kind."""

    english: tuple[str, str]
    french: tuple[str, str]
    gender: int
    kind: str
    article: str


class Adjective(NamedTuple):
    """An adjective; `french` is indexed by gender + 2 · number, and `before_vowel` is bel, vieil, nouvel."""

    english: str
    comparative: str
    superlative: str
    french: tuple[str, str, str, str]
    before_vowel: str
    precedes: bool
    kinds: tuple[str, ...]
    article: str


class Conjugation(NamedTuple):
    """A French verb; finite forms are indexed by person (je, il, nous, vous, ils), participles like adjectives."""

    infinitive: str
    present: tuple[str, ...]
    imperfect: tuple[str, ...]
    future: tuple[str, ...]
    conditional: tuple[str, ...]
    participle: tuple[str, str, str, str]
    with_etre: bool


class Verb(NamedTuple):
    """A verb: English forms, French conjugation, and which kinds of nouns it takes."""

    base: str
    third: str
    past: str
    participle: str
    gerund: str
    particle: str  # `for` in `wait for`; part of the verb, not of its object
    french: Conjugation
    before: str  # `de` in `parler de`: what French puts before the object
    pattern: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    stative: bool  # its simple past is an imparfait
    generic: bool  # its bare plural objects are generic: aimer les pommes
    formal: bool  # happens in meetings, not in gardens
    tail: str  # `besoin` in `avoir besoin de`
    reflexive: bool


class Named(NamedTuple):
    """A proper name with its French words, each with the English words (by place) it comes from."""

    english: tuple[str, ...]
    french: tuple[tuple[str, tuple[int, ...]], ...]
    gender: int
    number: int


# Nouns, by kind: English, French, gender; a fourth field is a French plural that no rule gives. `_` stands for a space.
NOUNS = {
    "family": """
        mother mère f; father père m; sister sœur f; brother frère m; uncle oncle m; aunt tante f; cousin cousine f;
        grandmother grand-mère f grands-mères; child enfant m; man homme m; woman femme f; boy garçon m; girl fille f;
        friend ami m; neighbour voisin m; baby bébé m; wife épouse f; husband mari m; guest invité m; twin jumeau m""",
    "profession": """
        teacher professeur m; doctor médecin m; lawyer avocat m; farmer agriculteur m; student étudiant m;
        pupil élève m; baker boulanger m; nurse infirmière f; engineer ingénieur m; worker ouvrier m; writer écrivain m;
        actor acteur m; actress actrice f; singer chanteuse f; dancer danseuse f; journalist journaliste m;
        secretary secrétaire f; driver chauffeur m; gardener jardinier m; fisherman pêcheur m;
        librarian bibliothécaire f; researcher chercheuse f; tourist touriste m; traveller voyageur m;
        customer cliente f; soldier soldat m; policeman policier m; hero héros m; painter peintre m;
        musician musicienne f; carpenter menuisier m; butcher boucher m""",
    "leader": """
        minister ministre m; president président m; king roi m; queen reine f; judge juge m; mayor maire m;
        director directrice f; senator sénateur m; general général m; ambassador ambassadrice f;
        mediator médiatrice f""",
    "animal": """
        dog chien m; cat chat m; horse cheval m; cow vache f; rabbit lapin m; mouse souris f; wolf loup m; fox renard m;
        bear ours m; lion lion m; elephant éléphant m; goat chèvre f; hedgehog hérisson m; frog grenouille f;
        squirrel écureuil m; snake serpent m; turtle tortue f; monkey singe m; donkey âne m; pig cochon m""",
    "bird": """
        bird oiseau m; duck canard m; hen poule f; owl hibou m hiboux; eagle aigle m; swallow hirondelle f;
        blackbird merle m; nightingale rossignol m""",
    "food": """
        cake gâteau m; egg œuf m; potato pomme_de_terre f pommes_de_terre; carrot carotte f; bean haricot m;
        onion oignon m; sandwich sandwich m sandwichs; salad salade f; pie tarte f; mushroom champignon m;
        lobster homard m; oyster huître f""",
    "fruit": """
        apple pomme f; orange orange f; pear poire f; tomato tomate f; cherry cerise f; strawberry fraise f;
        peach pêche f; apricot abricot m; melon melon m""",
    "dish": """
        bread pain m; cheese fromage m; butter beurre m; rice riz m; meat viande f; honey miel m; soup soupe f;
        jam confiture f; chocolate chocolat m; ham jambon m""",
    "drink": "water eau f; coffee café m; tea thé m; wine vin m; milk lait m; beer bière f; lemonade limonade f",
    "text": """
        letter lettre f; book livre m; report rapport m; newspaper journal m; story histoire f; article article m;
        poem poème m; novel roman m; message message m; speech discours m; notebook carnet m; essay essai m;
        note note f""",
    "legal": """
        agreement accord m; treaty traité m; contract contrat m; declaration déclaration f; petition pétition f;
        convention convention f; decree décret m; charter charte f""",
    "building": """
        house maison f; school école f; hospital hôpital m; church église f; hotel hôtel m; museum musée m;
        library bibliothèque f; castle château m; factory usine f; farm ferme f; university université f;
        theatre théâtre m; restaurant restaurant m; palace palais m; prison prison f; shop boutique f; inn auberge f""",
    "room": "kitchen cuisine f; office bureau m; cellar cave f; attic grenier m; bedroom chambre f; corridor couloir m",
    "outdoors": """
        garden jardin m; park parc m; village village m; city ville f; forest forêt f; valley vallée f; street rue f;
        field champ m; region région f; desert désert m; meadow pré m; orchard verger m; courtyard cour f""",
    "surface": """
        beach plage f; bridge pont m; island île f; square place f; hill colline f; road route f; terrace terrasse f;
        platform quai m; pavement trottoir m""",
    "water": "river rivière f; lake lac m; stream ruisseau m; pond étang m; canal canal m; ocean océan m",
    "furniture": """
        table table f; chair chaise f; bed lit m; armchair fauteuil m; shelf étagère f; bench banc m; desk pupitre m""",
    "thing": """
        key clé f; bag sac m; lamp lampe f; clock horloge f; bottle bouteille f; knife couteau m; spoon cuillère f;
        plate assiette f; box boîte f; umbrella parapluie m; computer ordinateur m; telephone téléphone m; axe hache f;
        tool outil m; basket panier m; candle bougie f; mirror miroir m; ring bague f; toy jouet m; flag drapeau m;
        ladder échelle f; blanket couverture f; painting tableau m; suitcase valise f""",
    "clothes": """
        hat chapeau m; coat manteau m; shirt chemise f; shoe chaussure f; dress robe f; scarf écharpe f;
        suit costume m""",
    "instrument": "guitar guitare f; piano piano m; violin violon m; harp harpe f; flute flûte f; trumpet trompette f",
    "vehicle": """
        car voiture f; bicycle vélo m; boat bateau m; train train m; plane avion m; ship navire m; truck camion m;
        tram tramway m; ambulance ambulance f""",
    "opening": "door porte f; window fenêtre f; gate portail m; drawer tiroir m",
    "plant": """
        tree arbre m; flower fleur f; rose rose f; oak chêne m; tulip tulipe f; rosebush rosier m; plant plante f""",
    "sky": "star étoile f; planet planète f; comet comète f",
    "institution": """
        government gouvernement m; parliament parlement m; ministry ministère m; court tribunal m; army armée f;
        assembly assemblée f; embassy ambassade f""",
    "organisation": """
        company entreprise f; bank banque f; council conseil m; committee comité m; union syndicat m;
        association association f; commission commission f; delegation délégation f; agency agence f;
        institute institut m""",
    "issue": """
        idea idée f; plan projet m; decision décision f; proposal proposition f; reform réforme f; budget budget m;
        law loi f; programme programme m; measure mesure f; method méthode f; solution solution f; rule règle f;
        strategy stratégie f; change changement m; offer offre f""",
    "topic": """
        crisis crise f; problem problème m; question question f; mistake erreur f; result résultat m; price prix m;
        tax impôt m; debate débat m; secret secret m; risk risque m; cause cause f; conflict conflit m;
        epidemic épidémie f; drought sécheresse f; shortage pénurie f; tragedy tragédie f; danger danger m""",
    "event": """
        meeting réunion f; conference conférence f; election élection f; festival festival m festivals;
        concert concert m; wedding mariage m; strike grève f; trial procès m; ceremony cérémonie f;
        exhibition exposition f; dinner dîner m; summit sommet m; celebration fête f""",
    "task": "exam examen m; lesson leçon f; journey voyage m; exercise exercice m; translation traduction f",
    "contest": "race course f; match match m matchs; tournament tournoi m; final finale f",
    "height": "mountain montagne f; wall mur m; tower tour f; cliff falaise f; roof toit m; hedge haie f",
}

UNCOUNTED = ("dish", "drink")


def pairs(text: str) -> dict[str, str]:
    """`one/un two/deux` as a mapping."""
    return dict(pair.split("/") for pair in text.split())


ENGLISH_PLURALS = pairs("""
    child/children man/men woman/women wife/wives mouse/mice wolf/wolves knife/knives shelf/shelves scarf/scarves
    crisis/crises policeman/policemen fisherman/fishermen tomato/tomatoes potato/potatoes hero/heroes
""")

# Broad kinds, to say in one word what a verb or an adjective takes.
GROUPS = {
    "person": ("family", "profession", "leader"),
    "institution": ("institution", "organisation"),  # countries are institutions; nobody creates them
    "power": ("leader", "institution", "organisation"),
    "beast": ("animal", "bird"),
    "living": ("family", "profession", "leader", "animal", "bird"),
    "meal": ("food", "fruit", "dish"),
    "edible": ("food", "fruit", "dish", "drink"),
    "paper": ("text", "legal"),
    "place": ("building", "room", "outdoors", "surface"),
    "area": ("outdoors", "surface", "water"),
    "goods": ("thing", "clothes", "instrument", "furniture"),
    "wares": ("thing", "clothes", "instrument", "furniture", "vehicle"),
    "visible": ("thing", "vehicle", "building", "animal", "bird", "plant", "water", "height"),
    "matter": ("issue", "topic"),
}


def kinds_of(words: str) -> tuple[str, ...]:
    """The kinds that a line of kinds and groups stands for, each once."""
    kinds: dict[str, None] = {}
    for word in words.split():
        kinds.update(dict.fromkeys(GROUPS.get(word, (word,))))
    unknown = [kind for kind in kinds if kind not in NOUNS]
    assert not unknown, unknown
    return tuple(kinds)


# Adjectives: English (with -er and -est forms when it has them), French masculine (and feminine when no rule gives it)
# | kinds. First those before their noun in French, then those after it.
BEFORE = """
    big/bigger/biggest grand | building room outdoors surface water animal thing furniture vehicle plant institution;
    small/smaller/smallest petit | building outdoors water beast food fruit thing furniture vehicle room opening;
    old/older/oldest vieux | person beast building surface goods vehicle opening;
    young/younger/youngest jeune | person;
    new/newer/newest nouveau | building goods vehicle text legal issue institution opening room;
    beautiful beau | building outdoors surface water animal bird clothes furniture instrument plant sky;
    good/better/best bon | profession meal drink text issue; bad/worse/worst mauvais | profession issue meal;
    long/longer/longest long longue | text event surface task contest;
    pretty/prettier/prettiest joli | outdoors building clothes plant surface room;
    high/higher/highest haut | height; real vrai | topic; brief/briefer/briefest bref brève | event text
"""
AFTER = """
    red rouge | clothes vehicle thing opening furniture; blue bleu | clothes vehicle thing opening furniture;
    green vert | clothes vehicle thing opening furniture;
    white/whiter/whitest blanc blanche | clothes vehicle thing building opening animal;
    black/blacker/blackest noir | clothes vehicle thing animal opening;
    yellow/yellower/yellowest jaune | clothes vehicle thing;
    grey/greyer/greyest gris | clothes vehicle thing animal; brown/browner/brownest brun | animal clothes furniture;
    purple violet violette | clothes thing; happy/happier/happiest heureux | person;
    sad/sadder/saddest triste | person; tired fatigué | person animal;
    kind/kinder/kindest gentil gentille | family profession; clever/cleverer/cleverest intelligent | person animal;
    brave/braver/bravest courageux | person; shy/shyer/shyest timide | family profession;
    famous célèbre | profession building text leader instrument; rich/richer/richest riche | profession family;
    proud/prouder/proudest fier fière | person; honest honnête | profession leader family;
    patient patient | profession family; serious sérieux | profession family leader;
    strong/stronger/strongest fort | animal; sick malade | family animal; curious curieux | family animal;
    generous généreux | person; careful prudent | profession leader;
    polite/politer/politest poli | family profession; lazy/lazier/laziest paresseux | family animal;
    nervous nerveux | family animal profession; jealous jaloux jalouse | family;
    worried inquiet inquiète | family leader profession; calm/calmer/calmest calme | person water;
    elegant élégant | family clothes profession; ambitious ambitieux | leader issue; loyal loyal | family leader;
    discreet discret discrète | profession family; dangerous dangereux | animal surface water;
    wild/wilder/wildest sauvage | animal bird plant; heavy/heavier/heaviest lourd | thing furniture clothes;
    light/lighter/lightest léger légère | thing clothes; expensive cher chère | wares;
    useful utile | thing text issue; fragile fragile | thing instrument plant;
    round/rounder/roundest rond | thing furniture; modern moderne | building room vehicle furniture;
    precious précieux | thing instrument; dirty/dirtier/dirtiest sale | clothes thing room vehicle;
    clean/cleaner/cleanest propre | clothes room vehicle building;
    empty/emptier/emptiest vide | building room vehicle; dry/drier/driest sec sèche | clothes;
    hot/hotter/hottest chaud | drink; cold/colder/coldest froid | drink water;
    fresh/fresher/freshest frais fraîche | meal drink; delicious délicieux | meal drink;
    sweet/sweeter/sweetest sucré | fruit; ripe/riper/ripest mûr | fruit; bitter amer amère | drink;
    important important | paper matter event institution; interesting intéressant | text issue event;
    boring ennuyeux | text event; difficult difficile | text task contest;
    easy/easier/easiest facile | text task contest;
    clear/clearer/clearest clair | text legal issue; official officiel officielle | paper event;
    public public publique | building outdoors event institution; national national | event institution building;
    European européen européenne | institution leader legal event; economic économique | issue event legal;
    political politique | issue event text; social social | issue; legal légal | issue paper;
    international international | institution event legal; municipal municipal | institution event building;
    local local | institution text event; historic historique | building event legal;
    recent récent | text legal event topic; complex complexe | topic issue;
    necessary nécessaire | issue; fair/fairer/fairest juste | issue legal;
    strange/stranger/strangest étrange | text thing; wise/wiser/wisest sage | leader;
    complete complet complète | text; annual annuel annuelle | event; central central | institution;
    foreign étranger étrangère | profession institution; private privé | building institution;
    powerful puissant | institution leader vehicle; independent indépendant | institution;
    active actif active | institution family; creative créatif créative | profession;
    solid solide | furniture building height; urgent urgent | paper topic; quiet/quieter/quietest tranquille | place;
    narrow/narrower/narrowest étroit | surface; deep/deeper/deepest profond | water;
    distant lointain | outdoors sky; bright/brighter/brightest brillant | sky;
    dark/darker/darkest sombre | room outdoors; peaceful paisible | outdoors water;
    sunny/sunnier/sunniest ensoleillé | outdoors surface room; comfortable confortable | furniture vehicle clothes;
    luxurious luxueux | building vehicle; cheerful joyeux | family profession; talented doué | profession;
    ridiculous ridicule | clothes issue; confidential confidentiel confidentielle | paper; rural rural | outdoors;
    exotic exotique | fruit plant bird; magnificent magnifique | building plant outdoors;
    noisy/noisier/noisiest bruyant | vehicle event; rare/rarer/rarest rare | plant bird;
    impressive impressionnant | building height sky contest event; visible visible | height sky building;
    surprising surprenant | topic text issue event contest; tiring fatigant | task contest;
    useless inutile | thing text issue; tasty/tastier/tastiest savoureux | meal;
    excellent excellent | meal drink text event
"""

# Verbs: English (base/past/participle when irregular), French | subjects | objects | marks.
# Marks: s stative, g generic objects, f formal, e with être, r reflexive.
INTRANSITIVE = """
    sing/sang/sung chanter | family profession bird; sleep/slept dormir | family animal;
    work travailler | profession family; laugh rire | family profession; smile sourire | person; dance danser | family;
    cry pleurer | family; swim/swam/swum nager | family animal; run/ran/run courir | family animal;
    walk marcher | family profession; wait attendre | person; grow/grew/grown pousser | plant fruit;
    shine/shone briller | sky | f; disappear disparaître | person beast thing | f; travel voyager | person;
    hesitate hésiter | power family | f; resign démissionner | leader | f; stop arrêter | vehicle profession | r;
    rest reposer | family profession | r; wake_up/woke_up/woken_up réveiller | family animal | r;
    get_up/got_up lever | family | r; begin/began/begun commencer | event task contest | f;
    end terminer | event task contest | r f;
    fall/fell/fallen tomber | thing family | e; arrive arriver | person vehicle | e f;
    leave/left partir | person vehicle | e; die mourir | person animal plant | e f; fly/flew/flown voler | bird
"""
STAY = """
    live habiter | family profession | s; stay rester | person | e; work travailler | profession; play jouer | family;
    walk marcher | family profession; travel voyager | profession family; sleep/slept dormir | family animal
"""
MOTION = """
    go/went/gone aller | person vehicle | e; come/came/come venir | person vehicle | e;
    return revenir | person vehicle | e
"""
TRANSITIVE = """
    read/read lire | family profession | paper; write/wrote/written écrire | profession family | text;
    sign signer | power | legal | f; see/saw/seen voir | family profession | visible family;
    eat/ate/eaten manger | family animal | meal; drink/drank/drunk boire | family profession | drink;
    buy/bought acheter | family profession | wares edible; sell/sold vendre | profession | wares edible;
    open ouvrir | family profession | opening building; close fermer | family profession | opening building room;
    find/found trouver | family profession | thing clothes text beast;
    lose/lost perdre | family profession | thing clothes text; love aimer | family | meal animal family outdoors | s g;
    hate détester | family | meal task | s g; admire admirer | family profession | profession plant building | s g;
    prefer préférer | family profession | meal drink plant | s g;
    know/knew/known connaître | person | person outdoors text | s; help aider | person | family profession;
    visit visiter | person | building outdoors; call appeler | person | family profession leader;
    meet/met rencontrer | person | person; thank remercier | person | person; invite inviter | person | person;
    watch regarder | family profession | beast vehicle; listen_to écouter | family profession | instrument person;
    look_for chercher | family profession | thing clothes animal; wait_for attendre | person | person vehicle;
    build/built construire | profession institution | building vehicle height;
    repair réparer | profession family | vehicle thing instrument opening furniture;
    paint peindre | profession | opening furniture building;
    draw/drew/drawn dessiner | family profession | plant animal building;
    carry porter | family profession | thing instrument; wear/wore/worn porter | family profession | clothes;
    choose/chose/chosen choisir | family profession | clothes fruit text thing;
    finish finir | family profession | text task; translate traduire | profession | paper;
    publish publier | institution profession | text | f; accept accepter | power profession | issue | f;
    reject rejeter | power | issue legal | f; approve approuver | power | issue legal | f;
    examine examiner | power profession | issue paper | f; support soutenir | power | issue institution | f;
    criticize critiquer | power profession | issue institution text | f; propose proposer | power | issue | f;
    announce annoncer | power | issue event | f; prepare préparer | profession leader institution | event text;
    organize organiser | profession power | event | f; cancel annuler | power | event | f;
    adopt adopter | institution | issue legal | f; lead/led diriger | leader | institution event | f;
    create créer | leader institution | organisation text | f;
    protect protéger | power profession | outdoors beast water building;
    follow suivre | family profession animal | family animal vehicle;
    clean nettoyer | family profession | room furniture building clothes vehicle;
    break/broke/broken casser | family | furniture instrument opening;
    keep/kept garder | family profession | thing clothes text; catch/caught attraper | animal family | beast;
    feed/fed nourrir | family profession | beast; improve améliorer | power profession | issue | f;
    study étudier | profession family | topic text issue; plant planter | profession family | plant;
    cross traverser | family profession vehicle animal | water outdoors surface;
    understand/understood comprendre | person | topic text issue;
    forget/forgot/forgotten oublier | family profession | thing clothes; pick cueillir | family profession | fruit;
    win/won gagner | family profession | contest; discover découvrir | profession family | outdoors sky;
    destroy détruire | institution | building height; hide/hid/hidden cacher | family | thing text;
    describe décrire | profession family | building outdoors text; change changer | power | issue;
    respect respecter | person institution | legal issue; appoint nommer | power | leader | f;
    borrow emprunter | profession family | text thing vehicle;
    own posséder | family profession | building vehicle furniture | s;
    want vouloir | family profession | wares meal | s;
    have/had avoir | family profession | animal vehicle thing | s;
    need avoir/besoin/de | person | thing vehicle | s; talk_about parler/de | person | event text issue;
    answer répondre/à | profession family | text; obey obéir/à | family profession | leader legal;
    enter entrer/dans | person | building room outdoors | e;
    take_part_in/took/taken participer/à | person institution | event;
    think_about/thought penser/à | person | issue task
"""
GIVING = """
    give/gave/given donner | family profession | wares fruit text;
    show/showed/shown montrer | family profession | thing text clothes instrument;
    send/sent envoyer | person institution | text; lend/lent prêter | family profession | wares text;
    offer offrir | family profession | plant clothes instrument; explain expliquer | person | topic issue;
    bring/brought apporter | family profession | thing drink food text; serve servir | profession | edible
"""
SAYING = """
    say/said dire | person institution; think/thought penser | person | s; believe croire | person | s;
    know/knew/known savoir | person | s; hope espérer | person | s; declare déclarer | power | f;
    explain expliquer | person; confirm confirmer | power | f; repeat répéter | person
"""
# What French puts before the infinitive follows the slash.
WILLING = """
    want_to vouloir | person | s; hope_to espérer | person | s; try_to essayer/de | person;
    decide_to décider/de | person; refuse_to refuser/de | person; begin_to/began_to/begun_to commencer/à | person;
    learn_to apprendre/à | family; continue_to continuer/à | person; promise_to promettre/de | person;
    need_to avoir/besoin/de | person | s
"""

# Present (je il nous vous ils), past participle, future stem; a longer verb that ends in one of these follows it.
IRREGULAR = {
    "être": "suis est sommes êtes sont, été, ser",
    "avoir": "ai a avons avez ont, eu, aur",
    "aller": "vais va allons allez vont, allé, ir",
    "dormir": "dors dort dormons dormez dorment, dormi, dormir",
    "servir": "sers sert servons servez servent, servi, servir",
    "partir": "pars part partons partez partent, parti, partir",
    "rire": "ris rit rions riez rient, ri, rir",
    "courir": "cours court courons courez courent, couru, courr",
    "mourir": "meurs meurt mourons mourez meurent, mort, mourr",
    "venir": "viens vient venons venez viennent, venu, viendr",
    "tenir": "tiens tient tenons tenez tiennent, tenu, tiendr",
    "aître": "ais aît aissons aissez aissent, u, aîtr",
    "lire": "lis lit lisons lisez lisent, lu, lir",
    "crire": "cris crit crivons crivez crivent, crit, crir",
    "dire": "dis dit disons dites disent, dit, dir",
    "voir": "vois voit voyons voyez voient, vu, verr",
    "boire": "bois boit buvons buvez boivent, bu, boir",
    "croire": "crois croit croyons croyez croient, cru, croir",
    "savoir": "sais sait savons savez savent, su, saur",
    "vouloir": "veux veut voulons voulez veulent, voulu, voudr",
    "pouvoir": "peux peut pouvons pouvez peuvent, pu, pourr",
    "devoir": "dois doit devons devez doivent, dû, devr",
    "ouvrir": "ouvre ouvre ouvrons ouvrez ouvrent, ouvert, ouvrir",
    "offrir": "offre offre offrons offrez offrent, offert, offrir",
    "cueillir": "cueille cueille cueillons cueillez cueillent, cueilli, cueiller",
    "uire": "uis uit uisons uisez uisent, uit, uir",
    "peindre": "peins peint peignons peignez peignent, peint, peindr",
    "prendre": "prends prend prenons prenez prennent, pris, prendr",
    "mettre": "mets met mettons mettez mettent, mis, mettr",
    "suivre": "suis suit suivons suivez suivent, suivi, suivr",
    "envoyer": "envoie envoie envoyons envoyez envoient, envoyé, enverr",
    "appeler": "appelle appelle appelons appelez appellent, appelé, appeller",
    "jeter": "jette jette jetons jetez jettent, jeté, jetter",
}

PRESENT_ENDINGS = {
    "er": ("e", "e", "ons", "ez", "ent"),
    "ir": ("is", "it", "issons", "issez", "issent"),
    "re": ("s", "", "ons", "ez", "ent"),
}
IMPERFECT_ENDINGS = ("ais", "ait", "ions", "iez", "aient")
FUTURE_ENDINGS = ("ai", "a", "ons", "ez", "ont")


def french_plural(word: str) -> str:
    """The regular plural of a French noun or masculine adjective."""
    if word[-1] in "sxz":
        return word
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word + ("x" if word.endswith(("eau", "jeu")) else "s")


def french_feminine(word: str) -> str:
    """The regular feminine of a French adjective or participle."""
    if word.endswith("eux"):
        return word[:-1] + "se"
    return word if word.endswith("e") else word + "e"


def french_forms(masculine: str, feminine: str = "") -> tuple[str, str, str, str]:
    """Masculine and feminine, then their plurals."""
    feminine = feminine or french_feminine(masculine)
    return masculine, feminine, french_plural(masculine), feminine + "s"


def regular_stems(infinitive: str) -> tuple[str, str, str]:
    """The stems of a regular verb: under a silent ending, under a sounded one, and of the future."""
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending != "er":
        return stem, stem, infinitive.removesuffix("e")
    if stem[-2:] in ("oy", "uy", "ay"):
        return stem[:-1] + "i", stem, stem[:-1] + "ier"
    if stem[-2] == "é" and stem[-1] not in "éai":
        return stem[:-2] + "è" + stem[-1], stem, infinitive
    if stem[-2] == "e" and stem[-1] in "tv":
        return stem[:-2] + "è" + stem[-1], stem, stem[:-2] + "è" + stem[-1] + "er"
    return stem, stem, infinitive


def softened(stem: str, ending: str) -> str:
    """Stem and ending, with c and g kept soft: mangeons, commençait."""
    if ending[0] in "ao" and stem[-1] in "cg":
        stem = stem[:-1] + "ç" if stem[-1] == "c" else stem + "e"
    return stem + ending


def conjugate(infinitive: str, *, with_etre: bool = False) -> Conjugation:
    """All the forms of a French verb that the grammar uses."""
    ending = infinitive[-2:]
    model = max((model for model in IRREGULAR if infinitive.endswith(model)), key=len, default="")
    if model:
        prefix = infinitive.removesuffix(model)
        finite, past, future = IRREGULAR[model].split(", ")
        present = tuple(prefix + form for form in finite.split())
        participle, future = prefix + past, prefix + future
    else:
        silent, sounded, future = regular_stems(infinitive)
        endings = PRESENT_ENDINGS[ending]
        present = tuple(softened(sounded, e) if e in ("ons", "ez") or ending == "ir" else silent + e for e in endings)
        participle = sounded + {"er": "é", "ir": "i", "re": "u"}[ending]
    imperfect_stem = "ét" if infinitive == "être" else present[2].removesuffix("ons")
    if ending == "er" and imperfect_stem[-2:] in ("ge",):
        imperfect_stem = imperfect_stem[:-1]
    imperfect_stem = imperfect_stem.replace("ç", "c") if imperfect_stem.endswith("ç") else imperfect_stem
    return Conjugation(
        infinitive,
        present,
        tuple(softened(imperfect_stem, e) for e in IMPERFECT_ENDINGS),
        tuple(future + e for e in FUTURE_ENDINGS),
        tuple(future + e for e in IMPERFECT_ENDINGS),
        french_forms(participle),
        with_etre,
    )


def indefinite(word: str) -> str:
    """`a` or `an`, by the sound an English word opens with."""
    silent = word.startswith(("honest", "hour"))
    sounded = word.startswith(("uni", "use", "Eur", "one"))
    return "an" if silent or (word[0] in "aeiouAEIOU" and not sounded) else "a"


def english_plural(word: str) -> str:
    """The plural of an English noun, or equally the third person of an English verb."""
    if word in ENGLISH_PLURALS:
        return ENGLISH_PLURALS[word]
    if word.endswith(("s", "x", "z", "ch", "sh")) or word == "go":
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def english_verb(line: str) -> tuple[str, str, str, str, str, str]:
    """Base, third person, past, participle, gerund and particle, from `write/wrote/written` or `wait_for`."""
    first, *irregular = line.split("/")
    base, _, particle = first.partition("_")
    doubled = (
        base + base[-1]
        if base in ("stop", "swim", "run", "get", "win", "begin", "forget", "prefer", "travel", "cancel")
        else base
    )
    past = base + "d" if base.endswith("e") else doubled + "ed"
    if base.endswith("y") and base[-2] not in "aeiou":
        past = base[:-1] + "ied"
    participle = past
    if irregular:
        past = irregular[0].partition("_")[0]
        participle = irregular[-1].partition("_")[0]
    if base == "die":
        gerund = "dying"
    else:
        gerund = (base[:-1] if base.endswith("e") and base[-2] not in "e" else doubled) + "ing"
    third = "has" if base == "have" else english_plural(base)
    return base, third, past, participle, gerund, particle.replace("_", " ")


def read_nouns() -> tuple[Noun, ...]:
    """Every noun of the tables above."""
    nouns = []
    for kind, table in NOUNS.items():
        for entry in table.split(";"):
            english, french, gender, *plural = entry.replace("\n", " ").split()
            french = french.replace("_", " ")
            many = plural[0].replace("_", " ") if plural else french_plural(french)
            one = english.replace("_", " ")
            forms = (one, english_plural(one)), (french, many)
            nouns.append(Noun(*forms, FEMININE if gender == "f" else MASCULINE, kind, indefinite(one)))
    return tuple(nouns)


IRREGULAR_ADJECTIVES = {
    "beau": (("beau", "belle", "beaux", "belles"), "bel"),
    "vieux": (("vieux", "vieille", "vieux", "vieilles"), "vieil"),
    "nouveau": (("nouveau", "nouvelle", "nouveaux", "nouvelles"), "nouvel"),
    "bon": (("bon", "bonne", "bons", "bonnes"), "bon"),
}


def read_adjectives() -> tuple[Adjective, ...]:
    """Every adjective of the tables above."""
    adjectives = []
    for table, precedes in ((BEFORE, True), (AFTER, False)):
        for line in table.split(";"):
            words, kinds = line.split("|")
            english, *french = words.split()
            base, comparative, superlative = english.split("/") if "/" in english else (english, "", "")
            forms, before_vowel = IRREGULAR_ADJECTIVES.get(french[0], (french_forms(*french), french[0]))
            allowed = kinds_of(kinds)
            adjectives.append(
                Adjective(base, comparative, superlative, forms, before_vowel, precedes, allowed, indefinite(base))
            )
    return tuple(adjectives)


def read_verbs() -> tuple[Verb, ...]:
    """Every verb of the tables above."""
    verbs = []
    for pattern, table in (
        ("alone", INTRANSITIVE),
        ("stay", STAY),
        ("motion", MOTION),
        ("object", TRANSITIVE),
        ("giving", GIVING),
        ("saying", SAYING),
        ("willing", WILLING),
    ):
        for line in table.split(";"):
            words, subjects, *rest = [part.strip() for part in line.split("|")]
            english, french = words.split()
            objects = rest.pop(0) if pattern in ("object", "giving") else ""
            marks = rest[0].split() if rest else []
            infinitive, *after = french.split("/")
            before, tail = (after[-1] if after else ""), (after[0] if len(after) > 1 else "")
            reflexive = "r" in marks
            conjugation = conjugate(infinitive, with_etre=reflexive or "e" in marks)
            flags = ("s" in marks, "g" in marks, "f" in marks)
            kinds = kinds_of(subjects), kinds_of(objects)
            verb = Verb(*english_verb(english), conjugation, before, pattern, *kinds, *flags, tail, reflexive)
            verbs.append(verb)
    return tuple(verbs)


ALL_NOUNS = read_nouns()
ALL_ADJECTIVES = read_adjectives()
ALL_VERBS = read_verbs()


def named(english: str, french: str, gender: int, number: int = SINGULAR) -> Named:
    """A proper name; in `la zone<2> économique<1>` a French word tells the places of its English words."""
    words = []
    for word in french.split():
        text, _, places = word.rstrip(">").partition("<")
        words.append((text, tuple(int(place) for place in places.split(",")) if places else (0,)))
    return Named(tuple(english.split()), tuple(words), gender, number)


WOMEN = "Marie Alice Claire Julie Anna Emma Hélène Sophie Louise"
MEN = "Paul Pierre Antoine Victor Simon Martin Émile Henri Olivier"
NAMES = (
    *(named(name, name, FEMININE) for name in WOMEN.split()),
    *(named(name, name, MASCULINE) for name in MEN.split()),
)
CITY_NAMES = pairs("""
    Paris/Paris London/Londres Brussels/Bruxelles Rome/Rome Geneva/Genève Lisbon/Lisbonne Vienna/Vienne Athens/Athènes
    Berlin/Berlin Madrid/Madrid Warsaw/Varsovie Amsterdam/Amsterdam Moscow/Moscou Oslo/Oslo
""")
CITIES = tuple(named(english, french, MASCULINE) for english, french in CITY_NAMES.items())
FEMININE_COUNTRIES = pairs("""
    France/France Spain/Espagne Italy/Italie Germany/Allemagne Belgium/Belgique Greece/Grèce England/Angleterre
    Sweden/Suède Hungary/Hongrie Austria/Autriche Poland/Pologne
""")
MASCULINE_COUNTRIES = pairs("Canada/Canada Japan/Japon Portugal/Portugal Brazil/Brésil Mexico/Mexique Morocco/Maroc")
COUNTRIES = (
    *(named(english, french, FEMININE) for english, french in FEMININE_COUNTRIES.items()),
    *(named(english, french, MASCULINE) for english, french in MASCULINE_COUNTRIES.items()),
)
# Names of bodies begin with their article, on both sides.
BODIES = (
    named("the European Economic Area", "la zone<3> économique<2> européenne<1>", FEMININE),
    named("the European Union", "la Union<2> européenne<1>", FEMININE),
    named("the European Commission", "la Commission<2> européenne<1>", FEMININE),
    named("the European Parliament", "le Parlement<2> européen<1>", MASCULINE),
    named("the World Bank", "la Banque<2> mondiale<1>", FEMININE),
    named("the Supreme Court", "la Cour<2> suprême<1>", FEMININE),
    named("the National Assembly", "la Assemblée<2> nationale<1>", FEMININE),
    named("the Central Bank", "la Banque<2> centrale<1>", FEMININE),
    named("the Red Cross", "la Croix-Rouge<1,2>", FEMININE),
    named("the United Nations", "les Nations<2> unies<1>", FEMININE, PLURAL),
)
MONTHS = pairs("""
    January/janvier February/février March/mars April/avril May/mai June/juin July/juillet August/août
    September/septembre October/octobre November/novembre December/décembre
""")
DAYS = pairs("""
    Monday/lundi Tuesday/mardi Wednesday/mercredi Thursday/jeudi Friday/vendredi Saturday/samedi Sunday/dimanche
""")
SEASONS = pairs("winter/hiver summer/été autumn/automne spring/printemps")
NUMBERS = pairs("""
    two/deux three/trois four/quatre five/cinq six/six seven/sept eight/huit nine/neuf ten/dix eleven/onze twelve/douze
    fifteen/quinze twenty/vingt thirty/trente forty/quarante fifty/cinquante sixty/soixante
""")
