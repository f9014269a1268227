# A run that is killed with SIGKILL, at whatever moment, and resumed, ends with the same bits as one that was not.
. "$(dirname "$0")/lib.bash"

run=("$sotto" train "${tiny[@]}" --steps=60 --save_every=5 --eval_every=20 --optim.warmup=5 --accumulate=2)
succeeds "${run[@]}" --out=whole
want=$(grep -o 'state [0-9a-f]*' out)
[ -n "$want" ] || die "no state hash"

kills=0
for delay in none 0 0.01 0.02 0.03 0.05; do # before there is a checkpoint, or so long after the next one
    "${run[@]}" --out=killed --resume >out 2>&1 &
    pid=$!
    [ $delay = none ] || { newer killed; sleep $delay; }
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null
    for folder in killed/checkpoints/step-*; do # whatever is there is whole
        [ -e "$folder" ] || continue
        succeeds "$sotto" sample "$folder" --tokens=1 --prompt=A --threads=1
    done
done
succeeds "${run[@]}" --out=killed --resume
[ "$(grep -o 'state [0-9a-f]*' out)" = "$want" ] || die "after $kills kills: $(grep -o 'state.*' out), want $want"
cmp whole/model.safetensors killed/model.safetensors || die "the models differ"
steps() {
    grep -o '"step": [0-9]*' "$1/metrics.jsonl"
}
[ "$(steps whole)" = "$(steps killed)" ] || die "the metrics have other steps"
[ "$(ls killed/checkpoints | wc -l)" = 3 ] || die "keep = 3, but there are: $(ls -A killed/checkpoints)"
[ "$kills" -gt 0 ] || die "nothing was killed"

# Cyclic data parallelism, killed behind a checkpoint, while micro-batches of several steps are under way: a ResNet, whose
# running statistics are in the state too. (mp: three stages.)
for class in bright dark; do
    mkdir -p set/$class
    for i in 1 2 3 4 5 6 7; do
        letter=$([ $class = dark ] && echo '!' || echo '~')
        { printf 'P5\n4 4\n255\n%s' "$i" && printf "%.0s$letter" {1..15}; } >set/$class/$i.pgm
    done
done
cases=(single.v2.1 dp.v1.3 pp.v2.3 zero.v2.3 mp.v2.6 zero.v1.3 mp.v1.6)
for i in "${!cases[@]}"; do
    share_has $i 4 || continue
    case=${cases[i]}
    IFS=. read -r placement rule workers <<<"$case"
    cyclic=("$sotto" train --model=resnet8 --resnet.depths=2,2 --resnet.widths=4,8 --data.train=set --batch=2 --threads=1 --lr=0.02
            --warmup=0 --eval_batches=0 --clip=0 --strategy=cdp --cdp.rule=$rule --cdp.placement=$placement --workers=$workers
            --steps=60 --save_every=3 --schedule=constant)
    [ $placement != single ] || cyclic+=(--cdp.stages=3)
    succeeds "${cyclic[@]}" --out=whole.$case
    want=$(state)
    kills=0
    for _ in 1 2; do
        "${cyclic[@]}" --out=killed.$case --resume >out 2>&1 &
        pid=$!
        newer killed.$case
        kill -9 $pid 2>/dev/null && kills=$((kills + 1))
        wait $pid 2>/dev/null
    done
    [ $kills -gt 0 ] || die "cdp $case: nothing was killed"
    succeeds "${cyclic[@]}" --out=killed.$case --resume
    [ "$(state)" = "$want" ] || die "cdp $case after $kills kills: $(state), want $want"
    cmp whole.$case/model.safetensors killed.$case/model.safetensors || die "cdp $case: the models differ"
done

# Checkpoints by time, which one worker's clock asks for and all make behind the same round, where groups train apart behind
# an exchange (co2's says so at the next one): they move no bit, and a run goes on from any of them. A short run has none.
steps_saved() { ls "$1/checkpoints" | sed 's/^step-0*//' | tr '\n' ' '; }
timed=("$sotto" train "${tiny[@]}" --steps=14 --optim.warmup=5 --keep=0)
every='1 2 3 4 5 6 7 8 9 10 11 12 13 14 '
virtual=(--time=virtual --worker.step=1ms --worker.jitter=0.2 --link.intra=200MB/s,20us)
cases=0
while read -r name want options; do
    want=${want//,/ }
    [ "$want" != every ] && want+=' ' || want=$every
    for time in real virtual; do
        cases=$((cases + 1))
        share_has $cases 5 || continue
        out=timed.$name.$time all=($options)
        [ $time = real ] || all+=("${virtual[@]}")
        succeeds "${timed[@]}" "${all[@]}" --out=$out.whole
        [ "$(steps_saved $out.whole)" = '14 ' ] || die "$name, $time: a short run saved at $(steps_saved $out.whole)"
        bits=$(state)
        [ $name != acco ] || all+=(--replay=$out.whole/counts.tsv)
        succeeds "${timed[@]}" "${all[@]}" --save_minutes=1e-9 --out=$out
        [ "$(state)" = "$bits" ] || die "$name, $time, saved all the time: $(state), want $bits"
        [ "$(steps_saved $out)" = "$want" ] || die "$name, $time: saved at $(steps_saved $out), want $want"
        first=$(ls $out/checkpoints | head -1)
        find $out/checkpoints -mindepth 1 -maxdepth 1 ! -name $first -exec rm -r {} +
        succeeds "$sotto" train --resume $out --save_minutes=0
        says "^resuming from $out/checkpoints/$first\$"
        [ "$(state)" = "$bits" ] || die "$name, $time, from $first: $(state), want $bits"
        [ "$(steps_saved $out)" = "$(sed 's/^step-0*//' <<<$first) 14 " ] || die "$name, $time: save_minutes = 0 saved at $(steps_saved $out)"
    done
done <<'end'
single every --accumulate=2
ddp every --workers=4
acco every --workers=2 --strategy=acco
demo every --workers=4 --strategy=demo
cdp every --workers=4 --strategy=cdp --tied=no --clip=0 --cdp.placement=dp
diloco 3,6,9,12,14 --workers=4 --mesh=2x2 --replicate=diloco --H=3
co2 6,12,14 --workers=4 --mesh=2x2 --replicate=co2 --tau=3
alone every --strategy=diloco --H=100
end
succeeds "${timed[@]}" --workers=2 --save_minutes=1e-9 --keep=2 --out=timed.keep
[ "$(steps_saved timed.keep)" = '13 14 ' ] || die "keep = 2 left $(steps_saved timed.keep)"
succeeds "${timed[@]}" --workers=2 --save_minutes=1e-9 --save=false --out=timed.unsaved
[ ! -d timed.unsaved/checkpoints ] || die "a run that saves nothing saved by time"
succeeds "$sotto" train --help save_minutes
says 'default 15'

# ... killed with nothing but those; the clock begins anew behind each.
timed=("$sotto" train "${tiny[@]}" --schedule=constant --warmup=0 --workers=2)
"${timed[@]}" --steps=1000000 --save_minutes=0.005 --keep=0 --link.intra=1GB/s,5ms --out=timed >out 2>&1 &
pid=$!
await has_saved timed 3
kill -9 $pid || die "ended: $(cat out)"
wait $pid 2>/dev/null
[ "$(ls timed/checkpoints | wc -l)" -ge 3 ] || die "no checkpoints by time: $(cat out)"
stat -c %.3Y timed/checkpoints/step-*/state.safetensors | awk 'NR > 1 && $1 - before < 0.29 { exit 1 } { before = $1 }' ||
    die "less than 0.3 s between checkpoints: $(stat -c '%n %.3Y' timed/checkpoints/step-*/state.safetensors)"
last=$(ls timed/checkpoints | tail -1)
last=$((10#${last#step-} + 3))
succeeds "$sotto" train --resume timed --steps=$last --save_minutes=15 --link.intra=
bits=$(state)
succeeds "${timed[@]}" --steps=$last --out=timed.straight
[ "$(state)" = "$bits" ] || die "killed with checkpoints by time: $bits, want $(state)"

# The shell empties `out` before it starts a run, or what the run before it said would do here.
under_way() {
    await wrote 'step 5/' out
}

# Ctrl-C, kill and a closed terminal: the round is finished, everything saved, and why and the way on are said.
for signal in INT TERM HUP; do
    : >out
    "${run[@]}" --steps=100000 --save_every=0 --check_memory=false --out=stopped-$signal >out 2>&1 &
    pid=$!
    under_way
    kill -$signal $pid
    wait $pid
    [ $? = $((128 + $(kill -l $signal))) ] || die "exit code of a run after SIG$signal: $(cat out)"
    says "^SIG$signal, will stop: "
    says "^to continue: $sotto train --resume stopped-$signal --check_memory=false$"
    says "^sotto: SIG$signal: stopped at step .*everything is saved"
    [ -d stopped-$signal/checkpoints ] || die "no checkpoint after SIG$signal"
done
fails_with 'already holds a run' "${run[@]}" --out=stopped-INT

# timeout(1) sends its signal to the process and to the group: both are one.
: >out
"${run[@]}" --steps=100000 --save_every=0 --out=grouped >out 2>&1 &
pid=$!
under_way
kill -STOP $pid
kill -TERM $pid
kill -CONT $pid
kill -TERM $pid
wait $pid
[ $? = 143 ] || die "exit code of a run that timeout ends: $(cat out)"
[ -d grouped/checkpoints ] || die "no checkpoint of a run that timeout ends"

# Who saves nothing is promised nothing.
: >out
"${run[@]}" --steps=100000 --save=false --out=unsaved >out 2>&1 &
pid=$!
under_way
kill -INT $pid
wait $pid
says '^SIGINT, will stop .*nothing is saved'
says '^sotto: SIGINT: stopped at step .*nothing is saved'
! grep -q 'to continue\|checkpoint' out || die "a way on without a checkpoint: $(cat out)"
[ -f unsaved/report.json ] && [ ! -d unsaved/checkpoints ] || die "what a run leaves that saves nothing"

# Nor does one that nobody reads from any more: `sotto train ... | less`.
"${run[@]}" --steps=100000 --save_every=0 --out=unread 2>out | head -n 1 >/dev/null
[ "${PIPESTATUS[0]}" = 141 ] || die "exit code of a run without a reader: $(cat out)"
says '^SIGPIPE, will stop: '
says '^sotto: SIGPIPE: stopped at step .*everything is saved'
[ -d unread/checkpoints ] || die "no checkpoint of a run without a reader"

# Who goes with the terminal takes no checkpoint along; and nohup keeps a run from hearing of it.
: >out
mkfifo pipe
cat pipe >out &
reader=$!
"${run[@]}" --steps=100000 --save_every=0 --out=piped >pipe 2>&1 &
pid=$!
under_way
kill -STOP $pid # so that both are gone at once
kill -HUP $pid
kill $reader
wait $reader
kill -CONT $pid
wait $pid
[ -d piped/checkpoints ] || die "no checkpoint where the reader was gone"
: >out
(trap '' HUP && exec "${run[@]}" --steps=100000 --save_every=0 --out=kept) >out 2>&1 &
pid=$!
under_way
kill -HUP $pid
kill -INT $pid
wait $pid
says '^SIGINT, will stop: '
exit 0
