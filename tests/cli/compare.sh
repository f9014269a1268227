# Comparisons as a user would make them: listed, run, killed, gone on with, checked.
. "$(dirname "$0")/lib.bash"
. "$(dirname "$self")/../comm/mpi/launch.bash"

printf '%s\n' "${tiny[@]}" | sed 's/^--//; s/=/ = /' >settings
{ echo '[compare]'
  echo 'title = Does a hundredth of the rate do?'
  echo 'columns = loss, eval_loss, steps'
  echo 'expect = fast.loss < slow.loss'
  echo 'expect = abs(fast.loss - again.loss) == 0'
  echo '[base]'
  echo 'steps = 30'
  echo 'eval_every = 10'
  echo 'save_every = 5'
  echo 'lr = 3e-3'
  cat settings
  echo '[run fast]'
  echo '[run again]'
  echo '[run slow]'
  echo 'lr = 3e-5'
} >rates.ini

succeeds "$sotto" compare rates.ini --list
says '^  slow +optim.lr = 3e-05$'
says '^  fast +\(as the base\)$'
says '^  expect  fast.loss < slow.loss$'
[ ! -e rates ] || die "--list made a folder"

# What a run would refuse, the list refuses with its name, and nothing is made.
refused() { # MESSAGE SETTING...
    local text=$1
    shift
    { cat rates.ini; echo '[run bad]'; printf '%s\n' "$@"; } >bad.ini
    fails_with "run bad: $text" "$sotto" compare bad.ini --list
    [ ! -e bad ] || die "--list made a folder"
}
refused "no device 'gpu'" 'device = gpu'
refused 'train.seq = 64 is longer than the model'"'"'s 32 positions' 'seq = 64'
refused 'heads = 3 do not divide width = 32' 'heads = 3' 'model.vocab = 300'
refused 'strategy.mesh = 3x1 needs 3 workers, there are 2' 'workers = 2' 'mesh = 3x1'
refused 'cannot open no-counts' 'workers = 2' 'strategy = acco' 'replay = no-counts'
refused 'train.oracle = null needs worker.step' 'oracle = null' 'time = virtual'

# So are columns and expectations of what runs do not report.
fails_with "columns: runs report no 'los': did you mean 'loss'?" "$sotto" compare rates.ini --columns=los
fails_with "curves: runs log no 'foo', but train/loss, train/lr," "$sotto" compare rates.ini --curves=foo
fails_with "curves: runs log no 'eval/los': did you mean 'eval/loss'?" "$sotto" compare rates.ini --curves=train/loss,eval/los --list
fails_with "columns: runs report no 'foo', but loss, common_loss, " "$sotto" compare rates.ini --columns=loss,foo --list
sed 's/fast.loss < slow.loss/fast.lss < slow.loss/' rates.ini >lss.ini
fails_with "fast.lss < slow.loss: runs report no 'lss': did you mean 'loss'?" "$sotto" compare lss.ini
[ ! -e rates ] && [ ! -e lss ] || die "a refused comparison made a folder"

succeeds "$sotto" compare rates.ini
says '^\[1/3\] fast: starts in rates/fast$'
says '^\[2/3\] again: starts in rates/again, about [0-9]+s left for 2 runs$'
says '^\[3/3\] slow: starts in rates/slow, about [0-9]+s left for 1 run$'
says '^\[3/3\] slow: loss [0-9.]+, eval_loss [0-9.]+, steps 30$'
says '^llama of [0-9]+ layers?, width [0-9]+, [0-9.]+ million parameters; cluster: 1 node x 1 worker$'
grep -q '; cluster: 1 node x 1 worker$' rates/table.md || die "table.md has no cluster: $(cat rates/table.md)"
says '^run +loss  eval_loss  steps$'
says '^slow +[0-9.]+ +[0-9.]+ +30$'
says '^ok +fast.loss < slow.loss +\([0-9.]+ < [0-9.]+\)$'
says '^ok +abs\(fast.loss - again.loss\) == 0 +\(0 == 0\)$'
grep -qxF '# Does a hundredth of the rate do?' rates/table.md || die "table.md has no title"
grep -q '^| slow ' rates/table.md || die "table.md has no row of slow"
grep -q '^fast,[0-9.]*,[0-9.]*,30$' rates/table.csv || die "table.csv: $(cat rates/table.csv)"
if command -v gnuplot >/dev/null; then
    for figure in loss-rounds loss-time eval-loss-rounds; do
        [ "$(head -c 8 rates/$figure.png | tail -c 7 | head -c 3)" = PNG ] || die "rates/$figure.png is no PNG"
        grep -q '<svg' rates/$figure.svg || die "rates/$figure.svg is no SVG"
        grep -qF "]($figure.png)" rates/table.md || die "table.md does not show $figure"
    done
    rm rates/loss-rounds.png
    (cd rates && gnuplot loss-rounds.gnuplot) || die "the script does not run by itself"
    [ -s rates/loss-rounds.png ] || die "the script draws nothing"
    [ ! -e rates/gnuplot.log ] || die "a log was left"
fi

if command -v script >/dev/null; then # on a terminal each round says what is left to all
    script -qec "'$sotto' compare rates.ini --out=seen --plot=false --only=fast,slow" /dev/null >out || die "on a terminal: $(cat out)"
    says 'step 30/30 .* 0s left  [0-9]+s for all runs'
    rm -r seen
fi

# Data that are missing are named at once, with the command that makes them, before a run is tried or a folder removed.
cp rates.ini missing.ini
printf '%s\n' '[run text]' 'data.format = auto' 'data.train = experiments/data/kjv.txt,mine.txt,stories,missing.ini' \
    '[run more]' 'data.format = auto' 'data.train = experiments/data/kjv.txt' 'data.valid = experiments/data/fashion-mnist, experiments/data/kjv.jsonl' \
    'train.init = base' 'data.tokenizer = words/tokenizer.json' \
    '[run after]' 'train.init = missing/fast/checkpoints' '[run tuned]' 'train.init = ./missing/fast' 'data.tokenizer = missing/fast' \
    '[run none]' 'train.init = nothing' 'data.format = auto' 'oracle = null' 'time = virtual' 'data.train = nothing.txt' >>missing.ini
absent='no run is started, since data are missing: experiments/data/kjv.txt, mine.txt, experiments/data/fashion-mnist, experiments/data/kjv.jsonl, words/tokenizer.json, base'
fails_with "$absent" "$sotto" compare missing.ini
! grep -q -e 'starts in' -e makes -e nothing.txt out && [ ! -e missing ] || die "a run was tried: $(cat out)"
mkdir experiments
cp "$(dirname "$self")/../../experiments/prepare" experiments
fails_with "$absent; experiments/prepare kjv fashion makes 2 of them" "$sotto" compare missing.ini --again
fails_with "$absent, missing/fast/checkpoints, missing/fast, ./missing/fast; " "$sotto" compare missing.ini --out=rates --again
[ -e rates/fast/report.json ] || die "it removed what was done"
fails_with "missing: experiments/data/kjv.txt, mine.txt; experiments/prepare kjv makes 1 of them" "$sotto" compare missing.ini --only=text
fails_with "data are missing: missing/fast" "$sotto" compare missing.ini --only=tuned # which no run makes then
rm -r experiments

# What is done is kept; another configuration is refused; --again runs it again. A switch for one start is no configuration.
cp rates/table.csv first.csv
succeeds "$sotto" compare rates.ini --check_memory=false --plot=false
says '^\[1/3\] fast: was done before: loss'
numbers=$(sed -n 's/^ "\([a-z_]*\)": [-0-9n].*/\1/p' rates/fast/report.json | tr '\n' ,)
[ "$(tr -cd , <<<"$numbers" | wc -c)" -gt 25 ] || die "few numbers in the report: $numbers"
succeeds "$sotto" compare rates.ini --columns="${numbers%,}" --list # all that are reported are columns
cmp first.csv rates/table.csv || die "the same runs gave another table"
fails_with "rates/fast holds a run of another configuration (train.steps was '30', is now '10')" \
    "$sotto" compare rates.ini --steps=10
cmp first.csv rates/table.csv || die "a refused comparison changed the table"
succeeds "$sotto" compare rates.ini --steps=10 --again --lr=2e-3 --plot=false
says '^optim.lr = 0.002: run slow keeps its own value, 3e-5$'
says '^slow +[0-9.]+ +[0-9.]+ +10$'

# Without gnuplot everything but the figures is there, and that is said.
mkdir bin
PATH=$scratch/bin "$sotto" compare rates.ini --steps=10 --out=bare >out 2>&1 || die "without gnuplot: $(cat out)"
says 'warning: figures are missing: gnuplot is not installed'
[ -s bare/table.md ] && [ -s bare/loss.tsv ] && [ -s bare/loss-rounds.gnuplot ] || die "without gnuplot files are missing"
[ ! -e bare/loss-rounds.png ] || die "a figure without gnuplot"
succeeds "$sotto" compare rates.ini --steps=10 --out=plain --plot=false
[ -s plain/loss.tsv ] && [ ! -e plain/loss-rounds.png ] || die "--plot=false drew"

# An expectation that does not hold: the exit code says so, and which one it was.
sed 's/fast.loss < slow.loss/fast.loss > slow.loss*1.02/' rates.ini >fails.ini
fails_with '1 of 2 expectations failed' "$sotto" compare fails.ini --steps=10 --out=plain --plot=false
says '^FAILED +fast.loss > slow.loss\*1.02 '
sed 's/fast.loss < slow.loss/fst.loss < slow.loss/' rates.ini >fails.ini
fails_with "fails.ini:4: expect: there is no run 'fst' (did you mean 'fast'?)" "$sotto" compare fails.ini
[ ! -e fails ] || die "a refused file made a folder"
# A base may hold what only some methods want; a run of its own may not.
{ sed -n '/^\[base\]/,/^\[run fast\]/p' rates.ini | sed '$d'
  printf '%s.tau = 2\n' local overlap-local slowmo co2
  echo 'workers = 2'
  echo '[run plain]'
  echo '[run local]'
  echo 'strategy = local-sgd'
} >methods.ini
succeeds "$sotto" compare methods.ini --steps=4 --plot=false
# A budget in tokens: both runs see as many, and are known to be done.
succeeds "$sotto" compare methods.ini --steps=-1 --tokens=2000 --out=budget --columns=tokens,common_loss,time_to_loss
says '^plain +2048 +[0-9.]+ +[0-9.]+$'
says '^local +2048 +[0-9.]+ +[0-9.]+$'
says '^common_loss: train/loss after 64 samples, reached by all runs$'
says '^time_to_loss: until train/loss is [0-9.]+, the lowest of '
[ -s budget/loss-samples.gnuplot ] || die "no curve over samples"
succeeds "$sotto" compare methods.ini --steps=-1 --tokens=2000 --out=budget --plot=false
says '^\[2/2\] local: was done before: '
# An optimizer that runs share is for those whose method has none; its weight decay is for all, where it is said.
sed -e '/tau = 2/d' -e 's/^workers = 2/&\noptim.kind = adamw\noptim.beta1 = 0.8\noptim.weight_decay = 0.1/' \
    -e 's/^strategy = local-sgd/strategy = random/' methods.ini >own.ini
succeeds "$sotto" compare own.ini --steps=4 --plot=false
grep -qx 'kind = sgd' own/local/checkpoints/*/sotto.ini && grep -qx 'weight_decay = 0.1' own/local/checkpoints/*/sotto.ini ||
    die "random has another optimizer: $(grep -A9 'optim' own/local/checkpoints/*/sotto.ini)"
succeeds "$sotto" compare own.ini --steps=4 --plot=false
says '^\[2/2\] local: was done before: '
fails_with "random.base = demo-sgd: the run in own/plain has the optimizer 'adamw'" "$sotto" train --resume own/plain --steps=6 --strategy=random
succeeds "$sotto" train --resume own/local --steps=6
{ cat methods.ini; echo '[run odd]'; echo 'diloco.H = 4'; } >odd.ini
fails_with "diloco.H = 4 has no effect: the method is ddp x sync" "$sotto" compare odd.ini --steps=4
fails_with "compare wants one file" "$sotto" compare
fails_with "unknown key 'stpes'" "$sotto" compare rates.ini --stpes=3
fails_with "there is no run 'fsat': did you mean 'fast'?" "$sotto" compare rates.ini --only=fsat --out=other

# Killed at whatever moment and started again, it ends with the models of one that was not.
sed '/^expect/d' rates.ini >killed.ini
succeeds "$sotto" compare killed.ini --out=whole --plot=false
kills=0
for run in fast fast again slow; do # once it has written
    "$sotto" compare killed.ini --plot=false >out 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ ! -s killed/$run/metrics.jsonl ]; do
        sleep 0.01
    done
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid 2>/dev/null
done
succeeds "$sotto" compare killed.ini --plot=false
says '^slow .* 30$'
for run in fast again slow; do
    cmp whole/$run/model.safetensors killed/$run/model.safetensors || die "after $kills kills $run differs"
done
cmp whole/table.csv killed/table.csv || die "after $kills kills: $(cat killed/table.csv)"
[ "$kills" -gt 0 ] || die "nothing was killed"

# Under MPI the ranks are the workers of every run, and one of them speaks.
if launcher "$sotto"; then
    ranks=(timeout 300 "${launch[@]}" -n 2 "$sotto" compare killed.ini --out=ranks --steps=10 --columns=loss,workers --plot=false)
    succeeds "${ranks[@]}"
    says '^fast +[0-9.]+ +2'
    [ "$(grep -c '^run  ' out)" = 1 ] || die "every rank printed a table"
    succeeds "${ranks[@]}" --again --only=slow
    says '^fast +[0-9.]+ +2'
    fails_with "train.workers was '2', is now '0'" "$sotto" compare killed.ini --out=ranks --steps=10
    succeeds "${launch[@]}" -n 2 "$sotto" compare killed.ini --list
    [ "$(grep -c '^  slow ' out)" = 1 ] || die "every rank printed the list: $(cat out)"
fi

# Ctrl-C: the way on is said.
stopping() { # OUT COMMAND...
    "${@:2}" compare rates.ini --steps=100000 --out="$1" >out 2>&1 &
    pid=$!
    await [ -s "$1/fast/metrics.jsonl" ]
}
stopping stopped "$sotto"
kill -INT $pid
wait $pid
[ $? = 130 ] || die "exit code of an interrupted comparison: $(cat out)"
says '^\[1/3\] fast: stopped$'
says "^to continue: $sotto compare rates.ini --steps=100000 --out=stopped\$"
if launcher "$sotto"; then
    for rank in 1 2; do # the first and the last
        share_has $rank 2 || continue
        stopping "$scratch/rank$rank" timeout 300 "${launch[@]}" -n 2 "$sotto"
        kill -INT "$(pgrep -f "^$sotto compare .*--out=$scratch/rank$rank\$" | sed -n ${rank}p)"
        wait $pid
        says '^\[1/3\] fast: stopped$'
        says "^to continue: [^ ]*mpi(run|exec).* -n 2 $sotto compare rates.ini --steps=100000 --out=$scratch/rank$rank\$"
    done
fi

# The virtual clock still gives the utilisations of docs/results/virtual-clock.md.
succeeds "$sotto" compare "$(dirname "$self")/../../experiments/diloco/streaming-table4.ini" --out=clock --plot=false
[ "$(grep -c '^ok ' out)" = 36 ] || die "expectations are missing: $(cat out)"
exit 0
