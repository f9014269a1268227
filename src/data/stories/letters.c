/* Letters: a date, a greeting, news in the first person, questions, a farewell with the writer's
 * name. */
#include "data/stories/grammar.h"

static const struct grammar_rule rules[] = {
    GRAMMAR_RULE(
        "start",
        "<a=#child><b!a=#child><t=#town><u!t=#town>$t, #date\n\nDear $b,\n\n#thanks #news #news2 #question\n\n#farewell\n$a[\n\nP.S. #postscript|]"),
    GRAMMAR_RULE(
        "date",
        "#month [1|2|3|4|5|6|7|8|9|10|11|12|13|14|15|16|17|18|19|20|21|22|23|24|25|26|27|28]"),
    GRAMMAR_RULE("month", "January", "February", "March", "April", "May", "June", "July", "August",
                 "September", "October", "November", "December"),
    GRAMMAR_RULE(
        "thanks",
        "thank you for your [long |kind |funny |last |]letter[ from $u|]. I [read it twice|was so glad to hear from you|showed it to my whole family].",
        "how are you? I hope [you are well|everything is fine in $u|you feel better now].",
        "I am sorry that I have not written for <n=#number>$n weeks. We have been very busy here in $t."),
    GRAMMAR_RULE("pet", "dog/dogs", "cat/cats", "rabbit/rabbits", "parrot/parrots",
                 "hamster/hamsters", "pony/ponies", "goldfish/fish"),
    GRAMMAR_RULE("relative", "sister/she/her", "brother/he/him", "cousin/he/him", "cousin/she/her",
                 "grandmother/she/her", "grandfather/he/him", "aunt/she/her", "uncle/he/him"),
    GRAMMAR_RULE("instrument", "piano", "violin", "flute", "guitar", "trumpet", "drums"),
    GRAMMAR_RULE("sport", "football", "tennis", "basketball", "chess", "hockey", "table tennis"),
    GRAMMAR_RULE(
        "news",
        "I have [big|great|good] news: we have @<c=[black|white|brown|grey|spotted]>$c <p=#pet>$p! [We call|My parents let me call] it <x!a!b=[#boyname|#girlname]>$x. $x [sleeps in my room|eats everything|follows me all day]. I never knew that $p.1 [are so clever|need so much care|can be so funny].",
        "last #day we [moved into|found] a new house near the <q=#place>$q. My room has @<c=#colour>$c door and a window from which I can see the $q. I share it with my <r=[sister|brother]>$r.",
        "I am learning to play the <i=#instrument>$i. I practice for an hour every day. My <r=#relative>$r says that [it sounds better now|the $i is too loud], and $r.1 [smiles|laughs]. In #month I will play the $i at school.",
        "our school won the <s=#sport>$s game against $u. We won by <n=#sum>$n to $n.2! I [scored once|helped a lot|sat on the bench, but I cheered]. Now everybody in $t talks about $s.",
        "my <r=#relative>$r came to visit us for <n=#number>$n days. $r.1 brought me @<c=#colour>$c [sweater|book|bag|lamp], and I took $r.2 to the <q=#place>$q. After $n days, I did not want $r.2 to leave."),
    GRAMMAR_RULE(
        "news2",
        "The weather in $t is [cold and wet|warm and sunny|windy|lovely] now, so we [stay inside|go out every day|play at the #place0].",
        "[Yesterday|On #day] I [made|ate] #food, and [it was very good|it was a disaster|I thought of you].",
        "At school we are [reading a book about|learning about|drawing] [the sea|the moon|old castles|wild animals|volcanoes]. It is [hard|fun|very interesting].",
        "I saved <m=#number>$m coins. When I have ten more, I will buy a train ticket to $u."),
    GRAMMAR_RULE("place0", "[park|lake|beach|river|market]"),
    GRAMMAR_RULE(
        "question",
        "When will you come to $t[, $b|]? [We could|Then we can] [go to the #place0|play #sport|sleep in a tent].",
        "What is new in $u? Do you still [play #sport|play the #instrument|have your #pet0]?",
        "Please write soon and tell me [everything|about your family|about your new school]."),
    GRAMMAR_RULE("pet0", "[dog|cat|rabbit|parrot|hamster|pony]"),
    GRAMMAR_RULE("farewell", "Your friend,", "Love,", "With best wishes,", "Yours,",
                 "Many greetings to your family,"),
    GRAMMAR_RULE("postscript", "The picture is for you, $b.",
                 "Say hello to your #relative1 for me.",
                 "My new address is <n=#number>$n Bridge Street, $t.",
                 "Do not forget my birthday in #month!"),
    GRAMMAR_RULE("relative1", "[sister|brother|mother|father|cousin]"),
};

const struct grammar grammar_letters = GRAMMAR(rules);
