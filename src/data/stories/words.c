/* Words of all topics. People are name/he/him/his/kind. */
#include "data/stories/grammar.h"

static const struct grammar_rule rules[] = {
    GRAMMAR_RULE("girlname", "Lily", "Mia", "Anna", "Sara", "Lucy", "Emma", "Zoe", "Nora", "Ruby",
                 "Molly", "Daisy", "Rosa", "Ella", "Ivy", "Clara", "Hannah", "Maya", "Sophie",
                 "Tina", "Wendy", "Alice", "Jane", "Kate", "Olive"),
    GRAMMAR_RULE("boyname", "Tom", "Ben", "Max", "Sam", "Leo", "Jack", "Tim", "Oscar", "Finn",
                 "Noah", "Peter", "Hugo", "Adam", "Luke", "Felix", "Oliver", "Theo", "Will",
                 "Henry", "Arthur", "Dan", "George", "Paul", "Simon"),
    GRAMMAR_RULE("animal", "rabbit", "bear", "fox", "mouse", "squirrel", "duck", "frog", "hedgehog",
                 "turtle", "cat", "puppy", "owl", "pig", "lamb", "beaver", "otter"),
    GRAMMAR_RULE("girl", "#girlname/she/her/her/girl"),
    GRAMMAR_RULE("boy", "#boyname/he/him/his/boy"),
    GRAMMAR_RULE("child", "#girl", "#boy"),
    GRAMMAR_RULE("hero", "#child", "#child", "#girlname/she/her/her/#animal",
                 "#boyname/he/him/his/#animal"),
    GRAMMAR_RULE("elder", "mother/she/her/her", "father/he/him/his", "grandmother/she/her/her",
                 "grandfather/he/him/his", "aunt/she/her/her", "uncle/he/him/his"),
    GRAMMAR_RULE("colour", "red", "blue", "green", "yellow", "orange", "purple", "pink", "white",
                 "black", "golden", "silver", "brown"),
    GRAMMAR_RULE("place", "park/in", "garden/in", "forest/in", "meadow/in", "beach/at", "market/at",
                 "farm/on", "hill/on", "river/by", "lake/by", "pond/by", "village/in", "orchard/in",
                 "field/in"),
    GRAMMAR_RULE("day", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday",
                 "Sunday"),
    GRAMMAR_RULE("town", "Oakfield", "Riverton", "Greenhill", "Stonebridge", "Westport", "Ashford",
                 "Millbrook", "Fairview", "Elmdale", "Eastham", "Sandy Bay", "Lakeside"),
    GRAMMAR_RULE("number", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    /* whole/part/rest: the first less the second is the third */
    GRAMMAR_RULE("sum", "three/one/two", "four/one/three", "four/two/two", "five/one/four",
                 "five/two/three", "five/three/two", "six/two/four", "six/three/three",
                 "six/four/two", "seven/two/five", "seven/three/four", "seven/four/three",
                 "eight/two/six", "eight/three/five", "eight/four/four", "eight/five/three",
                 "nine/two/seven", "nine/three/six", "nine/four/five", "nine/five/four",
                 "ten/two/eight", "ten/three/seven", "ten/four/six", "ten/five/five"),
    GRAMMAR_RULE("fruit", "apple/apples", "pear/pears", "plum/plums", "peach/peaches",
                 "orange/oranges", "banana/bananas", "lemon/lemons", "cherry/cherries"),
    GRAMMAR_RULE("food", "bread", "cheese", "soup", "cake", "honey", "porridge", "berries",
                 "cookies", "pancakes", "apple pie"),
};

const struct grammar grammar_words = GRAMMAR(rules);
