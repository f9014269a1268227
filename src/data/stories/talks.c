/* Two people in turn, a line each. Prices add up, directions are repeated back, answers fit their
 * questions. */
#include "data/stories/grammar.h"

static const struct grammar_rule rules[] = {
    GRAMMAR_RULE("start", "#shop", "#way", "#phone", "#doctor", "#lesson", "#station"),
    GRAMMAR_RULE("greet", "Good [morning|afternoon|evening]", "Hello", "Good day"),
    GRAMMAR_RULE("bye", "Goodbye", "Have a nice day", "See you soon", "Take care"),
    /* price of one/number bought/total price */
    GRAMMAR_RULE("price", "one/two/two", "one/three/three", "one/five/five", "two/two/four",
                 "two/three/six", "two/four/eight", "two/five/ten", "three/two/six",
                 "three/three/nine", "three/four/twelve", "four/two/eight", "four/three/twelve",
                 "five/two/ten", "five/three/fifteen", "five/four/twenty"),
    GRAMMAR_RULE("ware", "notebooks/a notebook", "tickets/a ticket", "candles/a candle",
                 "stamps/a stamp", "balloons/a balloon", "pencils/a pencil", "postcards/a postcard",
                 "roses/a rose", "pies/a pie", "brushes/a brush"),
    GRAMMAR_RULE("coin", "dollars", "coins", "crowns"),
    GRAMMAR_RULE(
        "shop",
        "<a=#child><n=#price><w=#ware><m=#coin>Clerk: #greet. [Can I help you|What can I do for you]?\n$a: [Yes, please|#greet]. How much [is $w.1|does $w.1 cost]?\nClerk: [One costs|It is] $n $m. How many [would you like|do you need]?\n$a: I would like $n.1 $w, please.\nClerk: ^$n.1 $w at $n $m each, that makes $n.2 $m.\n$a: Here are $n.2 $m.\nClerk: Thank you[, $a|]. [Do you need a bag?\n$a: [No, thank you|Yes, please]. #bye.|Here are your $w.\n$a: #bye.]"),
    GRAMMAR_RULE("spot", "station", "library", "museum", "post office", "school", "hospital",
                 "swimming pool", "town hall", "zoo"),
    GRAMMAR_RULE("mark", "church", "bakery", "bridge", "fountain", "bank", "old tower", "cinema",
                 "park"),
    GRAMMAR_RULE("turn", "left/right", "right/left"),
    GRAMMAR_RULE(
        "way",
        "<a=#child><s=#spot><k=#mark><t=#turn><u=#turn><n=#number>$a: Excuse me, [how do I get to|where is] the $s?\n[Officer<o=Officer>|Woman<o=Woman>|Man<o=Man>|Driver<o=Driver>]: Go straight on to the $k. Turn $t at the $k, and then take the [first|second|third] street on the $u.\n$a: So I turn [$t.1 at the $k?\n$o: No, not $t.1. Turn $t.\n$a: I see, $t at the $k|$t at the $k]. [Is it far|How long does it take]?\n$o: It takes about $n minutes [on foot|by bus].\n$a: [Only $n minutes|^$n minutes]! Thank you [very|so] much.\n$o: #bye."),
    GRAMMAR_RULE("activity", "go swimming/a towel", "play football/the ball",
                 "see a film/some money", "bake a cake/two eggs", "fly kites/my new kite",
                 "go fishing/a bucket", "paint/the brushes", "build a tree house/a hammer",
                 "have a picnic/some sandwiches"),
    GRAMMAR_RULE("hour", "one/two", "two/three", "three/four", "four/five", "five/six",
                 "ten/eleven", "nine/ten"),
    GRAMMAR_RULE(
        "phone",
        "<a=#child><b!a=#child><d=#day><e!d=#day><x=#activity><t=#hour>$a: Hello, $b. This is $a. [Would you like to|Do you want to|Shall we] $x on $d?\n$b: [I would love to|That sounds great|Oh yes], but on $d I [have to visit my #elderword|have a music lesson|must help at home].\n$a: [That is a pity|What a shame]. [How about|What about] $e?\n$b: On $e I [am free|have time]. [When shall we meet|What time]?\n$a: Can you come at $t?\n$b: [At $t is fine|Yes, at $t|^$t is too early. Is $t.1 all right?\n$a: Yes, $t.1 is fine].\n$a: [Please bring|Do not forget] $x.1.\n$b: [I will bring $x.1|^$x.1, all right]. See you on $e, $a!"),
    GRAMMAR_RULE("elderword", "aunt", "uncle", "grandmother", "grandfather", "cousin"),
    GRAMMAR_RULE("ill", "head/a headache/rest in a dark room", "tooth/a toothache/eat less candy",
                 "throat/a sore throat/drink warm tea", "stomach/a stomach ache/eat only dry bread",
                 "ear/an earache/wear a warm hat", "knee/a sore knee/put some ice on it"),
    GRAMMAR_RULE("doctor",
                 "<a=#child><i=#ill><n=[two|three|four|five]>Doctor: #greet, $a. [What is the matter|How are you feeling]?\n$a: My $i hurts[, doctor|].\nDoctor: [How long has your $i been hurting|Since when does it hurt]?\n$a: [For $n days|It began $n days ago].\nDoctor: Let me [see|have a look]. [Hm|I see]. You have $i.1. You should $i.2[ and stay at home for $n days|].\n$a: ^$i.2? [All right|I will do that]. Will my $i get better?\nDoctor: [Certainly|Yes, of course]. Come back on #day if you still have $i.1.\n$a: Thank you, doctor. #bye."),
    GRAMMAR_RULE("fact", "How many legs does a spider have/eight/A spider has eight legs",
                 "How many legs does a bee have/six/A bee has six legs",
                 "What color is the grass/green/The grass is green",
                 "How many days are in a week/seven/A week has seven days",
                 "What do cows give us/milk/Cows give us milk",
                 "What do bees make/honey/Bees make honey",
                 "Where do fish live/in the water/Fish live in the water",
                 "What falls in winter/snow/In winter, snow falls",
                 "What shines at night/the moon/The moon shines at night",
                 "What is three and four/seven/Three and four make seven",
                 "What is two and six/eight/Two and six make eight",
                 "What is five and five/ten/Five and five make ten",
                 "What is nine less four/five/Nine less four is five",
                 "How many months are in a year/twelve/A year has twelve months"),
    GRAMMAR_RULE(
        "lesson",
        "<a=#child><b!a=#child><q=#fact><r!q=#fact>Teacher: #greet, children. [Here is a question|Let us begin]. $q?\n$a: [I know, it is $q.1!|Is it $q.1?]\nTeacher: [Right|Very good|Correct], $a. $q.2. [Next question|Now listen, $b]. $r?\n$b: [I am not sure|Let me think]. [Is it $q.1?\nTeacher: No, $b, not $q.1. Who can help?\n$a: I think it is $r.1.\nTeacher: Yes, $a. $r.2.|I think it is $r.1.\nTeacher: Well done, $b. $r.2.]\nTeacher: [That is all for today|For #day, please draw a picture]. #bye."),
    GRAMMAR_RULE(
        "station",
        "<a=#child><s=#town><e!s=#town><n=#number><t=#hour>$a: [When does|What time does] the next train to $s leave?\nClerk: The train to $s leaves at $t from platform $n.\n$a: Do I have to change?\nClerk: [No, it goes straight to $s|Yes, you change in $e. The train from $e to $s is on the same platform].\n$a: [When do I arrive|And when is it in $s]?\nClerk: At $t.1, if it is on time.\n$a: [A ticket to $s, please|One child to $s, please].\nClerk: Here you are. Platform $n, at $t. #bye."),
};

const struct grammar grammar_talks = GRAMMAR(rules);
