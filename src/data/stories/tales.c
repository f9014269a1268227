/* Children's stories. A tale draws its people, place and thing once (slots h, f, p, pl, th ...) and
 * every later sentence refers to them; an early promise of a plot (a hiding place, a warning, a
 * count) is kept at the end. */
#include "data/stories/grammar.h"

// clang-format off
static const struct grammar_rule rules[] = {
    GRAMMAR_RULE("start", "#cast#lost", "#cast#share", "#cast#broken", "#cast#skill",
                 "#cast#rescue", "#cast#fear", "#cast#gift", "#cast#counting", "#cast#journey",
                 "#cast#secret"),
    /* h: hero, f: friend, p: an elder, pl: place, th: a thing with c: its colour, m: the hero's
       mood */
    GRAMMAR_RULE("cast",
                 "<h=#hero><f!h=#hero><p=#elder><pl=#place><c=#colour><th=#thing><m=#mood>"),
    GRAMMAR_RULE("mood", "curious", "shy", "kind", "brave", "clever", "cheerful", "gentle",
                 "lively", "quiet", "proud", "funny", "eager"),
    GRAMMAR_RULE("thing", "ball", "kite", "doll", "drum", "book", "hat", "toy boat", "cup",
                 "lantern", "basket", "scarf", "whistle", "key", "bell", "umbrella", "blanket",
                 "ribbon", "toy train"),
    GRAMMAR_RULE("hobby", "sing", "dance", "draw", "climb trees", "tell jokes", "pick flowers",
                 "count the stars", "read stories", "build towers", "watch the birds",
                 "jump in puddles", "eat #food"),
    GRAMMAR_RULE(
        "opening",
        "once upon a time, there was @[$m|little|young] $h.4 named $h. $h.1 lived [near|close to|not far from] the $pl with $h.3 $p.",
        "long ago, @$m $h.4 [called|named] $h lived with $h.3 $p in a [small|cozy|little] house near the $pl.",
        "$h was @$m $h.4 who loved to #hobby.[ $h.1 lived with $h.3 $p near the $pl.|]",
        "there once was @$h.4 named $h. $h was [very|so|always] $m, and $h.1 liked to #hobby.",
        "in a [quiet|small|sunny] valley near the $pl, there lived @$m $h.4. ^$h.3 name was $h."),
    GRAMMAR_RULE("when", "one [sunny|windy|cold|warm|bright|cloudy] [morning|day|afternoon]",
                 "one [spring|summer|autumn|winter] [day|morning]", "on #day", "early one morning",
                 "the next day", "one day"),
    GRAMMAR_RULE("happy", "happy", "glad", "very happy", "full of joy",
                 "so happy that $h.1 [danced|laughed|clapped]", "delighted"),
    GRAMMAR_RULE("sad", "sad", "very sad", "upset", "so sad that $h.1 began to cry", "unhappy"),
    GRAMMAR_RULE("meetfriend",
                 "on the way, $h.1 met $h.3 friend $f, @[little|young|friendly|cheerful] $f.4.",
                 "just then, @$f.4 named $f came [by|along].",
                 "^$h.3 best friend was @$f.4 named $f. $f came to [help|see $h.2].",
                 "@[friendly|kind|cheerful] $f.4 named $f [saw|heard] $h and came over."),
    GRAMMAR_RULE("ask", "\"What is [wrong|the matter], $h?\" asked $f.",
                 "\"Why are you [sad|crying], $h?\" $f asked.",
                 "$f asked, \"Can I help you, $h?\""),
    GRAMMAR_RULE("thanks", "\"Thank you, $f!\" said $h.",
                 "$h [hugged|thanked] $f and said, \"You are a [good|true|great] friend.\"",
                 "\"You are the best friend in the world, $f,\" $h said.", "$h gave $f a big hug."),
    GRAMMAR_RULE(
        "evening",
        "that [night|evening], $h told $h.3 $p [everything|all about it|the whole story]. ^$h.3 $p [smiled|nodded|laughed] and said, \"I am proud of you.\"",
        "when $h came home, $h.3 $p made #food for $h.2 and $f.",
        "at the end of the day, $h and $f sat by the $pl and watched the [sun go down|stars come out].",
        "they ate #food together and laughed until [bedtime|it was dark]."),
    GRAMMAR_RULE("moral", "from that day on, $h always remembered to $lesson.",
                 "$h learned that it is [good|important|best] to $lesson.",
                 "and $h never again forgot to $lesson.",
                 "so $h learned to $lesson, and they were all happy."),
    /* The thing is lost, and found where the tale has left it. */
    GRAMMAR_RULE("spot", "under the [bed|table|old bench]", "behind the [door|sofa|big tree]",
                 "in the [tall grass|kitchen|hay|wooden box]",
                 "on top of the [shelf|wall|cupboard]", "next to the [gate|well|stove]",
                 "inside [an old boot|a flower pot|the mailbox]"),
    GRAMMAR_RULE(
        "lost",
        "#opening\n\n$h had @$c $th. It was a present from $h.3 $p. #when, $h played with the $th all morning. Before lunch, $h.1 [put|left] it <s=#spot>$s and went to eat.\n\n"
        "After lunch, $h could not find the $c $th. ^$h.1 looked <s1!s=#spot>$s1. It was not there. ^$h.1 looked <s2!s!s1=#spot>$s2. It was not there [either|at all]. $h was #sad.\n\n"
        "#meetfriend #ask \"I lost my $c $th,\" said $h. \"Where did you [have it last|play before lunch]?\" asked $f. $h [thought|thought hard|closed $h.3 eyes] and [remembered|then remembered]. They ran to look $s. And there it was! The $th was $s.\n\n"
        "$h was #happy. #thanks #evening<lesson=[put things away|think before looking|take care of $h.3 things|stop and think]> #moral"),
    /* Two children want the same thing. */
    GRAMMAR_RULE(
        "share",
        "#opening #when, $h and $h.3 friend $f, @$f.4, were [playing|walking] $pl.1 the $pl. They [saw|found] @$c $th [near a tree|on the ground|beside a stone|under a bush].\n\n"
        "\"It is mine! I saw it first!\" [said|shouted|cried] $h. \"No, it is mine!\" [said|shouted|cried] $f. They both pulled the $th. They pulled and pulled until $h fell [down|into the mud|on $h.3 back]. [Now nobody was happy.|They were both angry.|$f began to cry.]\n\n"
        "^$h.3 $p heard the noise and came. \"[There is|We have] only one $th,\" $p.1 said, \"but you are two friends. What could you do?\" $h [looked|thought for a while and looked] at $f. \"I am sorry, $f,\" $h.1 said. \"You can have the $th first, and then it is my turn.\" $f smiled. \"Let us use it together,\" $f.1 said.\n\n"
        "So they took turns with the $c $th. [It was much more fun that way.|They played until the sun went down.|They had a wonderful day.]<lesson=[share|share with $h.3 friends|take turns|share and be kind]> #moral"),
    /* A warning is ignored; the truth mends the damage. */
    GRAMMAR_RULE("breakable", "vase", "cup", "plate", "lamp", "mirror", "bowl", "teapot", "clock"),
    GRAMMAR_RULE(
        "broken",
        "#opening ^$h.3 $p had @<c=#colour>$c <b=#breakable>$b that stood on the [shelf|table|window sill]. \"Please do not [run|play ball|jump] near the $b,\" said $h.3 $p. \"It is very old.\"\n\n"
        "#when, it was [raining|too cold to go out], and $h wanted to play inside. ^$h.1 [forgot what $h.3 $p had said|did not listen]. ^$h.1 [threw a ball|ran around the room|jumped up and down]. Crash! The $c $b fell down and broke into <n=#number>$n pieces.\n\n"
        "$h was #sad. \"[I could|Maybe I should] hide the pieces,\" $h.1 thought. But then $h [took a deep breath|was brave] and went to $h.3 $p. \"I broke your $b,\" $h said. \"I am [so|very] sorry.\"\n\n"
        "^$h.3 $p was [quiet|sad] for a moment. \"Thank you for telling the truth,\" $p.1 said. \"That was [brave|hard to do].\" Together they [picked up|found] all $n pieces and [glued them|put them together with glue]. The $b was not as pretty as before, but $h and $h.3 $p [loved|liked] it even more.<lesson=[tell the truth|be honest|listen to $h.3 $p]> #moral"),
    /* Practice: fails thrice, is taught, succeeds. */
    GRAMMAR_RULE(
        "skill",
        "#opening $h wanted to learn to <k=#craft>$k. All the other #kids could $k, but $h could not.\n\n"
        "#when, $h went to the $pl to try. The first time, $h.1 $k.1. The second time, $h.1 $k.1 again. The third time, it was [even worse|no better]. \"I will never learn to $k,\" said $h. $h.1 was #sad.\n\n"
        "#meetfriend \"I could not $k [at first|last year] either,\" said $f. \"[You must|You have to] $k.2.\" $f showed $h.2 how to do it. $h tried [again|once more]. \"^$k.2,\" $h.1 said to $h.2self.\n\n"
        "They practiced every day for <n=#number>$n days. On the last day, $h tried again, and this time $h.1 did it! \"Look, $f! I can $k!\" $h [called|shouted|cried]. $f [clapped|cheered|jumped up and down]. #thanks<lesson=[keep trying|keep going|practice every day|ask a friend for help]> #moral"),
    GRAMMAR_RULE("kids", "animals", "children", "little ones"),
    GRAMMAR_RULE(
        "craft", "swim/sank like a stone/kick and breathe",
        "whistle/made no sound/blow very gently", "skate/slipped and fell/bend your knees",
        "ride a bike/fell over/look straight ahead", "fly a kite/dropped it/run against the wind",
        "juggle/dropped everything/watch the top ball", "jump rope/got stuck/listen to the beat",
        "dive/landed on the tummy/tuck in your chin",
        "bake bread/burned it/wait and watch the oven",
        "paint/spilled the paint/start with small strokes"),
    /* Someone small is in trouble; the thing helps; kindness returns. */
    GRAMMAR_RULE("tiny", "bird/its wing/sang a song", "kitten/its paw/purred",
                 "butterfly/its wing/danced in the air", "bee/its leg/brought some honey",
                 "fish/its tail/splashed", "snail/its shell/smiled slowly",
                 "ladybug/its leg/turned around twice", "chick/its foot/chirped"),
    GRAMMAR_RULE("trap", "in a thorny bush", "in a deep hole", "under a fallen branch",
                 "in an old net", "between two stones", "in the mud"),
    GRAMMAR_RULE(
        "rescue",
        "<th=[scarf|rope|umbrella|basket|blanket|stick|ribbon|shovel]>#opening #when, $h went for a walk $pl.1 the $pl. ^$h.1 took $h.3 $c $th along. Suddenly, $h.1 heard a [small|tiny|soft] voice. \"Help! Please help me!\" It was @<a=#tiny>[tiny|little|small] $a. The $a was stuck <t=#trap>$t, and it had hurt $a.1.\n\n"
        "\"Do not [be afraid|worry], little $a,\" said $h. \"I will help you.\" ^$h.1 [pulled|pushed] and [pulled|pushed], but the $a was still stuck $t. Then $h had an idea. ^$h.1 used the $c $th to [reach|lift|free] the $a. [Slowly|Bit by bit|At last], the $a came out.\n\n"
        "\"Thank you, kind $h.4,\" said the $a. \"One day I will help you too.\" And it [went home|hurried away|disappeared into the grass].\n\n"
        "<n=#number>^$n days later, $h got lost $pl.1 the $pl. It was getting dark, and $h was [afraid|cold and afraid]. Then $h.1 heard a small voice. It was the $a! \"Follow me,\" said the $a, \"I know the way.\" The $a led $h all the way home. ^$h.3 $p was waiting at the door with #food. $h was #happy, and the little $a $a.2.<lesson=[be kind to everyone|help those who are small|help others]> #moral"),
    /* A fear, and company against it. */
    GRAMMAR_RULE("dread", "the dark/night came/the stars", "thunder/a storm came/the rain",
                 "deep water/everyone went swimming/the little waves",
                 "the big dog next door/the dog barked/its soft ears",
                 "the old bridge/they had to cross it/the view",
                 "loud noises/the drums began/the music"),
    GRAMMAR_RULE(
        "fear",
        "#opening But there was one thing: $h was afraid of <d=#dread>$d. Whenever $d.1, $h [hid under a blanket|held $h.3 $c $th tight|wanted to hide].\n\n"
        "#when, $h visited $h.3 friend $f, @$f.4. [Soon|After a while], $d.1. $h began to [shake|tremble]. \"[What is it|What is wrong], $h?\" asked $f. \"I am afraid of $d,\" $h said in a [small|quiet] voice.\n\n"
        "$f did not laugh. \"I was afraid of $d too,\" said $f. \"Then I learned to think of $d.2.\" $f took $h by the hand[, and they sat close together| and stayed with $h.2]. $h thought of $d.2. [Slowly|Little by little], the fear [grew small|went away].\n\n"
        "The next time $d.1, $h did not [hide|run away|cry]. \"I am not afraid of $d anymore,\" $h.1 told $h.3 $p. ^$h.3 $p [smiled|was surprised]. \"What @[brave|$m and brave] $h.4 you are,\" $p.1 said.<lesson=[be brave|talk about $h.3 fears|think of good things]> #moral"),
    GRAMMAR_RULE(
        "gift",
        "#opening Soon it would be the birthday of $h.3 $p, and $h wanted to make <g=#present>@$g. For that $h.1 needed $g.1, $g.2, and $g.3.\n\n"
        "#when, $h went out with a [basket|little bag]. First $h.1 asked the [farmer|baker|miller] for $g.1. \"Here you are,\" said the [old man|old woman], \"and good luck.\" Then $h.1 went to the $pl to get $g.2. [That took a long time.|That was not easy.|That was fun.] \"Now I only need $g.3,\" said $h. But $h could not find $g.3 [anywhere|at all]. $h was #sad.\n\n"
        "#meetfriend \"I need $g.3 to make @$g for my $p,\" said $h. \"I have some at home!\" said $f. $f ran home and came back with $g.3. #thanks\n\n"
        "Now they had everything: $g.1, $g.2, and $g.3. $h and $f worked all [day|afternoon]. When $h.3 $p came home, $h called, \"Happy birthday!\" ^$h.3 $p looked at the $g. \"Did you make this $g for me?\" $p.1 asked. \"It is the best present of all!\"<lesson=[give with love|make others happy|ask for help]> ^#moral"),
    GRAMMAR_RULE("present", "cake/flour/eggs/honey", "necklace/a string/shells/a gold bead",
                 "kite/paper/two sticks/a long string", "pie/butter/berries/sugar",
                 "crown/leaves/flowers/a ribbon", "soup/carrots/onions/salt",
                 "birdhouse/wood/nails/a hammer", "card/paper/dried flowers/glue",
                 "pillow/cloth/soft feathers/a needle", "lantern/a jar/a candle/colored paper"),
    /* Arithmetic with correct sums. */
    GRAMMAR_RULE("goods", "shells", "marbles", "acorns", "cookies", "nuts", "buttons", "stones",
                 "feathers", "berries", "pine cones", "stickers", "coins"),
    GRAMMAR_RULE(
        "counting",
        "<th=[basket|bag|box|jar|bucket]>#opening $h loved to collect <g=#goods>$g. #when, $h went to the $pl with @$c $th to find some. ^$h.1 [searched|looked] and [searched|looked]. At last, $h.1 counted them. <n=#sum>\"I have $n $g!\" said $h.\n\n"
        "#meetfriend $f had no $g [at all|of $f.3 own] and looked [sad|a little sad]. \"I [looked|searched] all day, but I found nothing,\" said $f. $h looked at $h.3 $n $g. ^$h.1 wanted to keep them all. But $f was $h.3 friend.\n\n"
        "\"Here,\" said $h, and gave $n.1 of the $g to $f. Now $h had $n.2 $g left, and $f had $n.1. $f was so [glad|happy] that $f.1 [hugged $h|danced|laughed]. \"^$n.1 for me and $n.2 for you!\" $f said.\n\n"
        "They put the $g into the $c $th [and took them out again|and counted them once more]: $n.2 and $n.1 make $n. #evening<lesson=[share|give to others|be kind to $h.3 friends]> #moral"),
    /* There and back, three helpers or obstacles. */
    GRAMMAR_RULE("errand", "some medicine/is ill/the medicine",
                 "a warm blanket/is cold/the blanket", "this letter/is waiting for news/the letter",
                 "fresh bread/is hungry/the bread", "a lamp/is sitting in the dark/the lamp",
                 "some flowers/is lonely/the flowers"),
    GRAMMAR_RULE("barrier", "a wide river/swam across", "a high wall/climbed over it",
                 "a dark forest/sang a song and walked on", "a steep hill/went up step by step",
                 "a muddy field/jumped from stone to stone", "a locked gate/crawled under it"),
    GRAMMAR_RULE(
        "journey",
        "#opening <q!p=#elder><e=#errand>#when, $h.3 $p called $h.2. \"Your $q $e.1,\" $p.1 said. \"Please take $q.2 $e.\" So $h [put on|took] $h.3 <w=[coat|hat|boots|scarf]>$c $w and set out.\n\n"
        "The way was long. First, $h came to <b=#barrier>$b. ^$h.1 was [afraid|tired], but $h.1 thought of $h.3 $q and $b.1. Then $h.1 came to <b2!b=#barrier>$b2. \"[Oh no|This is hard],\" said $h, but $h.1 $b2.1.\n\n"
        "#meetfriend \"Come and play with me!\" said $f. $h wanted to play. But $h.1 [shook $h.3 head|said no]. \"My $q $e.1. First I must bring $q.2 $e.2,\" said $h. \"Then I will come with you,\" said $f.\n\n"
        "At last, they [knocked at|came to] the door. $h gave $e.2 to $h.3 $q. \"You passed $b and $b2 for me?\" asked $h.3 $q. \"What @$m $h.4 you are!\" ^$h, $f, and the $q ate #food together[, and $h.3 $c $w dried by the fire|, and then the friends played until dark].<lesson=[finish what $h.1 starts|keep a promise|help $h.3 family|work first and play later]> #moral"),
    GRAMMAR_RULE(
        "secret",
        "#opening #when, $h found a [small|heavy|strange|wooden] box $pl.1 the $pl. It was locked. \"I wonder what is inside,\" said $h. $h.1 shook the box. It [rattled|made a soft sound|rang].\n\n"
        "#meetfriend \"Maybe there is @<g1!th=#thing>$g1 in it,\" said $f. \"Or @<g2!th!g1=#thing>$g2,\" said $h. They tried to open it with [a stick|a stone|a spoon], but it did not open.\n\n"
        "They took the box to $h.3 $p. ^$p.1 [looked at it|smiled] and said, \"That box was mine when I was [young|little]. I lost it $pl.1 the $pl [many years ago|long ago]. I still have the key!\" ^$p.1 [opened a drawer|went to the cupboard] and took out @[tiny|rusty|little] key. Click! The box was open.\n\n"
        "It was not @$g1, and it was not @$g2. Inside was @$c $th! \"This $th was my [greatest treasure|favorite thing],\" said $h.3 $p. \"Now it is yours.\" $h was #happy. $h and $f played with the $c $th [all day|until it was dark|every day].<lesson=[look closely|be patient|ask before guessing|wait and see]> #moral"),
};
// clang-format on

const struct grammar grammar_tales = GRAMMAR(rules);
