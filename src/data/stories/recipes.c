/* Recipes. The steps use the ingredients of the list, in the same order. */
#include "data/stories/grammar.h"

static const struct grammar_rule
    rules[] =
        {
            GRAMMAR_RULE("start", "#soup", "#cake", "#salad", "#bread", "#jam", "#stew",
                         "#pancakes"),
            GRAMMAR_RULE("serves", "Serves [two|three|four|six|eight].",
                         "Enough for [two|three|four|six] people."),
            GRAMMAR_RULE("minutes", "[five|ten|fifteen|twenty|thirty|forty] minutes"),
            GRAMMAR_RULE("vegetable", "carrot/carrots", "onion/onions", "potato/potatoes",
                         "tomato/tomatoes", "leek/leeks", "pepper/peppers", "turnip/turnips",
                         "mushroom/mushrooms", "zucchini/zucchini"),
            GRAMMAR_RULE("herb", "parsley", "thyme", "basil", "dill", "mint", "rosemary", "chives"),
            GRAMMAR_RULE("spice", "pepper", "paprika", "nutmeg", "cumin", "ginger"),
            GRAMMAR_RULE("sweetspice", "cinnamon", "vanilla", "nutmeg", "ginger", "cardamom"),
            GRAMMAR_RULE("fat", "butter", "olive oil", "oil"),
            GRAMMAR_RULE("sweet", "sugar", "honey", "brown sugar", "maple syrup"),
            GRAMMAR_RULE("nut", "walnuts", "almonds", "hazelnuts", "pumpkin seeds"),
            GRAMMAR_RULE(
                "soup",
                "<a=#vegetable><b!a=#vegetable><h=#herb>^$a and $b soup\n\nIngredients: <n=#number>$n $a.1, <k!n=#number>$k $b.1, one liter of [water|broth], <o=#fat>[one spoon|two spoons] of $o, salt, and [fresh|dried] $h.\n\n"
                "Wash and [peel|chop|slice] the $a.1. Cut the $b.1 into [small|large] pieces. Heat the $o in a [pot|large pot]. Add the $a.1 and cook them for #minutes, then add the $b.1. Pour in the [liquid|hot liquid] and simmer for #minutes. [Blend until smooth.|Do not let it boil over.|Stir now and then.] Season with salt and $h. #serves"),
            GRAMMAR_RULE(
                "cake",
                "<f=#fruit><s=#sweet><x=#sweetspice>^$f cake\n\nIngredients: [two|three] cups of flour, one cup of $s, <n=[two|three|four]>$n eggs, half a cup of <o=[butter|oil|milk]>$o, <m=#number>$m $f.1, and a [little|pinch of] $x.\n\n"
                "[Heat|Preheat] the oven. Beat the $n eggs with the $s until [pale|light|creamy]. Stir in the $o, then the flour and the $x. Cut the $m $f.1 into [slices|cubes] and [lay them on top|fold them in]. Bake for #minutes [until golden|until a stick comes out clean]. Let the cake cool [on a rack|in the pan]. #serves"),
            GRAMMAR_RULE(
                "salad",
                "<a=#vegetable><b!a=#vegetable><h=#herb><u=#nut>[Summer|Winter|Quick|Simple] salad with $a.1\n\nIngredients: <n=#number>$n $a.1, one $b, a handful of $u, olive oil, <v=[vinegar|lemon juice]>$v, salt, and $h.\n\n"
                "Wash the $a.1 and the $b. [Slice|Chop|Grate] the $a.1 [finely|thinly], and cut the $b into strips. [Toast|Chop] the $u. Mix the oil with the $v and a pinch of salt. Toss everything together and [sprinkle with|top with] $h. Serve [at once|cold]. #serves"),
            GRAMMAR_RULE(
                "bread",
                "<g=[wheat|rye|spelt|oat]><u=#nut>^$g bread[ with $u<y=the $u>|<y=a little more flour>]\n\nIngredients: <n=[four|five|six]>$n cups of $g flour, one packet of yeast, [two|three] spoons of <s=#sweet>$s, salt, and warm water.\n\n"
                "Dissolve the yeast and the $s in the warm water and wait #minutes. Add the $n cups of $g flour and the salt. Knead the dough for #minutes, then work in $y. Cover it and let it rise [for an hour|for two hours|until it has doubled]. Shape a loaf and bake it for #minutes. The bread is done when it sounds hollow."),
            GRAMMAR_RULE(
                "jam",
                "<f=#fruit><x=#sweetspice>^$f jam\n\nIngredients: [one kilo|two kilos] of $f.1, <s=#sweet>the same weight of $s, the juice of [one lemon|two lemons], and some $x.\n\n"
                "Wash the $f.1 and remove the [stones|seeds|stems]. Put the $f.1 into a pot with the $s and the lemon juice. Bring to a boil and stir for #minutes. Add the $x. Test a drop on a cold plate. Fill the hot jam into clean jars and [close them at once|turn them upside down]. It keeps for [six months|a year]."),
            GRAMMAR_RULE(
                "stew",
                "<m=[beef|chicken|lamb|bean|lentil]><a=#vegetable><b!a=#vegetable><x=#spice>[Country|Winter|Slow|Grandmother's] $m stew\n\nIngredients: one [pound|kilo] of $m, <n=#number>$n $a.1, <k=#number>$k $b.1, <o=#fat>[one spoon|two spoons] of $o, one liter of broth, $x, and salt.\n\n"
                "Heat the $o and brown the $m on all sides. Chop the $a.1 and the $b.1. Add the $n $a.1 first and the $k $b.1 after #minutes. Pour in the broth, cover, and cook [slowly|over low heat] for [one hour|two hours|three hours]. Season with salt and $x. [Serve with bread.|Serve with rice.|It tastes even better the next day.] #serves"),
            GRAMMAR_RULE(
                "pancakes",
                "<f=#fruit><s=#sweet>[Thin|Fluffy|Sunday] pancakes with $f.1\n\nIngredients: <n=[one cup|two cups|three cups]>$n of flour, <e=[two|three|four]>$e eggs, [one cup|two cups] of milk, a pinch of salt, butter, $s, and <m=#number>$m $f.1.\n\n"
                "Whisk the flour, the $e eggs, the milk, and the salt [until smooth|without lumps]. Let the batter rest for #minutes. Melt some butter in a pan. Pour in [a ladle|half a ladle] of batter, and turn the pancake when [bubbles appear|the edge is brown]. Slice the $m $f.1. Serve the pancakes hot with the $f.1 and $s. #serves"),
};

const struct grammar grammar_recipes = GRAMMAR(rules);
