# sotto info: what runs when, drawn; and how a model is cut into stages.
. "$(dirname "$0")/lib.bash"

# Version 2 of three stages: figure 1c of the paper, its last two workers and what they have in all.
succeeds "$sotto" info --schedule cdp-v2 --stages 3 --svg=v2.svg
says '^cdp-v2, placement dp: 3 stages, 3 micro-batches a training step'
says '^time step  +0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15$'
says '^worker 0 +F1 F2 F3 B3 B2 B1 F1 F2 F3 B3 B2 B1 F1 F2 F3 B3$'
says '^worker 1 +\.  \. F1 F2 F3 B3 B2 B1 F1 F2 F3 B3 B2 B1 F1 F2$'
says '^worker 2 +\.  \.  \.  \. F1 F2 F3 B3 B2 B1 F1 F2 F3 B3 B2 B1$'
[ "$(grep '^  version' out | tr -s ' ' | tr '\n' ';')" = " version 0 0 0 0 0 0 0 0 1 1 0 0 1 1 2 2; \
version 0 0 0 0 0 0 0 1 1 1 1 0 1 2; version 0 0 0 0 0 0 1 1 1 1 1 1;" ] || die "versions: $(grep version out)"
says '^updated stage {28}3  2  1 {11}3  2  1$'
says '^stage activations +1  2  4  5  6  6  6  6  6  6  6  6  6  6  6  6$'
says '^  activations of all devices, at most +2.000 micro-batches$'
says '^  consecutive messages, at most +1$'

# The figure has the same tasks, and is one that can be read.
[ "$(grep -c '>[FB][123]</text>' v2.svg)" = "$(grep '^worker' out | grep -o '[FB][123]' | wc -l)" ] || die "tasks of v2.svg"
grep -q 'cdp-v2, placement dp, 3 stages' v2.svg || die "title of v2.svg"
[ "$(tail -n 1 v2.svg)" = '</svg>' ] || die "v2.svg has no end"
fails_with "nowhere/v2.svg" "$sotto" info --schedule cdp-v2 --stages 3 --svg=nowhere/v2.svg

# Version 1 is one step behind everywhere.
succeeds "$sotto" info --schedule cdp-v1 --stages 3
[ "$(grep -m 1 '^  version' out | tr -s ' ')" = " version 0 0 0 0 0 0 0 0 0 0 0 0 1 1 1 1" ] || die "versions of v1"

# Plain data parallelism has all activations at once and then a chain of messages; 1F1B empties its pipeline.
succeeds "$sotto" info --schedule dp --stages 3
says '^worker 2 +F1 F2 F3 B3 B2 B1 F1 F2 F3 B3 B2 B1$'
says '^stage activations +3  6  9  9  6  3  3  6  9  9  6  3$'
says '^  consecutive messages, at most +4$'
succeeds "$sotto" info --schedule 1f1b --stages 3
says '^1f1b, placement pp'
says '^worker 0 stage 1 +F1  \. F2  \. F3 B1  \. B2  \. B3 F1 '
says '^worker 2 stage 3 +\.  \. F1 B1 F2 B2 F3 B3  \.  \.  \.  \. F1 '

# Other placements.
succeeds "$sotto" info --schedule=cdp-v2 --placement=single --stages=4 --svg=single.svg
says '^micro-batch 4 +\.  \.  \.  \.  \.  \. F1 F2 '
says '^  activations of a device, at most +2.500 micro-batches$'
succeeds "$sotto" info --schedule=cdp-v2 --placement=mp --stages=4
says '^  devices +10$'
says '^  activations of a device, at most +0.250 micro-batches$'
succeeds "$sotto" info --schedule=cdp-v2 --placement=zero --stages=4
says '^  optimizer state sent +6.000 models$' # 2n(n-1) moves of a quarter

fails_with "1f1b is a pipeline: --placement=pp, not dp" "$sotto" info --schedule=1f1b --placement=dp --stages=2
fails_with "the schedule of --placement=pp without cycles is 1f1b" "$sotto" info --schedule=dp --placement=pp --stages=2
fails_with "with sync all micro-batches use a stage at the same time" "$sotto" info --schedule=dp --placement=zero --stages=2
fails_with "a schedule of 65 stages cannot be drawn: 64 at most" "$sotto" info --schedule=cdp-v2 --stages=65
fails_with "set --schedule, too" "$sotto" info --svg=x.svg
fails_with "set --schedule, too" "$sotto" info --placement=mp
succeeds "$sotto" info --schedule=cdp-v1 --stages=64 --svg=large.svg

# Enough to see something.
succeeds "$sotto" info --schedule=cdp-v2
says '^cdp-v2, placement dp: 4 stages'

# Stages of a model: 26 sublayers in all, the last is the loss alone.
succeeds "$sotto" info gpt2 --stages=4
says '^4 stages, forward and backward of a micro-batch:$'
says '^  stage +sublayers +parameters +GFLOP +share$'
says '^  4 +26-26 +1536 +[0-9.]+ +29\.0 %$'
says '^heaviest stage: 1\.161 of an equal share$'
succeeds "$sotto" info gpt2
! grep -q 'stages, forward' out || die "stages of a model in one piece"
succeeds "$sotto" info gpt2 --stages=3 --schedule=cdp-v2
says '^heaviest stage'
says '^worker 2 '
