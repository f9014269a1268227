/* Weather reports. The season determines rain or snow, temperatures and clothes; a dry sky needs no
 * umbrella. */
#include "data/stories/grammar.h"

static const struct grammar_rule rules[] = {
    GRAMMAR_RULE("start", "<r=#region><d=#nextday>[#headline#report|#report]"),
    GRAMMAR_RULE("region", "#town", "#town", "the #side coast", "the northern hills",
                 "the river valley", "the islands"),
    GRAMMAR_RULE("side", "north", "south", "east", "west"),
    GRAMMAR_RULE("nextday", "Monday/Tuesday", "Tuesday/Wednesday", "Wednesday/Thursday",
                 "Thursday/Friday", "Friday/Saturday", "Saturday/Sunday", "Sunday/Monday"),
    GRAMMAR_RULE("headline", "Weather for $r, $d\n", "Forecast for $d: $r\n"),
    GRAMMAR_RULE("report", "<s=#winter>#body", "<s=#spring>#body", "<s=#summer>#body",
                 "<s=#autumn>#body"),
    /* s: season/sky of a wet day/advice/high/low, high and low in degrees, in this order */
    GRAMMAR_RULE(
        "winter",
        "winter/snow/wear a warm coat/[minus two|zero|one|two|three]/[minus nine|minus seven|minus five|minus four]",
        "winter/sleet/drive slowly/[two|three|four|five]/[minus three|minus one|zero]"),
    GRAMMAR_RULE(
        "spring",
        "spring/[light rain|short showers]/take an umbrella/[eleven|twelve|fourteen|fifteen]/[four|five|six|seven]"),
    GRAMMAR_RULE(
        "summer",
        "summer/thunderstorms/keep away from tall trees/[twenty-four|twenty-six|twenty-eight|thirty]/[fifteen|sixteen|seventeen]",
        "summer/a brief shower/take a light jacket/[twenty-one|twenty-two|twenty-three]/[twelve|thirteen|fourteen]"),
    GRAMMAR_RULE(
        "autumn",
        "autumn/[steady rain|drizzle|heavy rain]/bring an umbrella/[nine|ten|twelve|thirteen]/[three|four|five|six]"),
    GRAMMAR_RULE("body", "#wet", "#wet", "#dry"),
    GRAMMAR_RULE(
        "wind",
        "[light|gentle|fresh|strong|gusty] winds from the [#side|#side|north[east|west]|south[east|west]]"),
    GRAMMAR_RULE(
        "wet",
        "[Expect|There will be] $s.1 in $r on $d. The morning [starts|begins] [cloudy|grey|overcast] with #wind. [By noon|In the afternoon|Toward evening], $s.1 will [reach|move into] [the area|$r][ from the #side|]. #temperatures ^$s.2 if you go out. #outlook",
        "A low pressure area brings $s.1 to $r. $d will be [wet|unsettled] with #wind. #temperatures Travelers should $s.2. #outlook"),
    GRAMMAR_RULE(
        "dry",
        "$d will be [sunny|clear|bright|mostly dry] in $r. [After morning fog|After a clear night|After some early clouds], the sun comes out [by noon|later in the day]. #wind will [ease|pick up] in the [afternoon|evening]. #temperatures There is no sign of [rain|clouds|a storm]. #outlook",
        "High pressure keeps $r dry on $d. Skies stay [clear|blue|mostly clear] with #wind. #temperatures It is a good day to [be outside|hang out the washing|go for a walk]. #outlook"),
    GRAMMAR_RULE(
        "temperatures",
        "Temperatures [reach|rise to|climb to] $s.3 degrees during the day and [fall|drop] to $s.4 at night.",
        "The high will be $s.3 degrees, the low $s.4."),
    GRAMMAR_RULE(
        "outlook",
        "Outlook for $d.1: [more of the same|a little warmer|a little cooler|slowly improving|again $s.1].",
        "On $d.1, [the wind turns #side|clouds return|the sky clears]."),
};

const struct grammar grammar_weather = GRAMMAR(rules);
