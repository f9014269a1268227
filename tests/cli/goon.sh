# `sotto train --resume RUN` alone goes on exactly, whatever the run was started with and from wherever; what is said
# beside it is listed, and what cannot change is refused; a checkpoint that is damaged is passed over.
. "$(dirname "$0")/lib.bash"

mkdir work elsewhere
cd work || exit 1
for i in $(seq 400); do
    echo "The $((i % 7)) cats of house $i saw a dog near the $((i % 5))th garden."
done >book.txt
cat >my.ini <<'END'
[train]
save_every = 10
batch = 4
seq = 32
threads = 1
eval_batches = 2
log_every = 5
[optim]
lr = 3e-3
schedule = constant
clip = 0.5
[data]
train = book.txt, stories:weather
stories = 50
vocab = 300
END
sizes=(--layers=2 --width=32 --heads=2 --positions=32)
begin=("$sotto" train my.ini "${sizes[@]}" --accumulate=2 --seed=7)

# A file, options and relative names; twice, since the second checkpoint is written by a run that was itself resumed.
succeeds "${begin[@]}" --steps=40 --out=whole
want=$(state)
succeeds "${begin[@]}" --steps=15 --keep=1 --out=part
(cd ../elsewhere && succeeds "$sotto" train --resume ../work/part --steps=25 &&
    says '^changed: train.steps 15 -> 25$' && [ "$(grep -c '^changed:' out)" = 1 ]) || die "the first time"
cd ..
succeeds "$sotto" train --resume work/part --steps=40
[ "$(state)" = "$want" ] || die "with the folder alone: $(state), want $want"
cmp work/whole/model.safetensors work/part/model.safetensors || die "the models differ"
cd work || exit 1

# The same with --out, where what is not said again stays too.
succeeds "${begin[@]}" --steps=15 --out=plain
succeeds "$sotto" train --out=plain --resume --steps=40
[ "$(state)" = "$want" ] || die "with --out: $(state), want $want"

# An older checkpoint goes on in another folder, to the same bits, and its run stays as it is. In that run it would replace
# the newer ones.
mv whole "a whole"
older="a whole/checkpoints/step-00000020"
fails_with "step 40: \`sotto train --resume '$older' --out=FOLDER\` continues from step 20 in" "$sotto" train --resume "$older"
fails_with "\`sotto train --resume './a whole'\` continues: another --out" "$sotto" train --resume "$older" --out="./a whole"
fails_with "name two folders: \`sotto train --resume 'a whole/checkpoints/step-00000040' --out=next\`" "$sotto" train --resume "a whole" --out=next
mv "a whole" whole
older=whole/checkpoints/step-00000020
find whole -printf '%p %s %T@\n' >before
for out in "" --out=whole --out=whole/; do
    fails_with "the run in whole has continued from there to step 40: \`sotto train --resume $older --out=FOLDER\` continues from step 20 in" \
        "$sotto" train --resume $older $out
done
succeeds "$sotto" train --resume $older --out=fork --dry_run
[ ! -e fork ] || die "a dry run made a folder"
succeeds "$sotto" train --resume=$older/ --out=fork
says "^$older is copied to fork/checkpoints/step-00000020, and stays as it is$"
says '^resuming from fork/checkpoints/step-00000020$'
[ "$(state)" = "$want" ] || die "from step 20: $(state), want $want"
[ "$(grep -o '"step": [0-9]*' fork/metrics.jsonl)" = "$(grep -o '"step": [0-9]*' whole/metrics.jsonl)" ] || die "metrics of a fork"
fails_with "fork already holds a run of 40 steps" "$sotto" train --resume $older --out=fork
cp -r $older . && fails_with "is a checkpoint outside of a run's folder: --out=FOLDER sets the folder" "$sotto" train --resume step-00000020
find whole -printf '%p %s %T@\n' >after
cmp before after || die "going on elsewhere changed the run"
succeeds "$sotto" train --resume whole/checkpoints/step-00000040
says '^nothing is left to do: the run in whole has 40 steps already'
ln -s whole/checkpoints/step-00000040 newest
for more in "" --out=next; do
    fails_with "newest holds a checkpoint under another name than step-00000100" "$sotto" train --resume newest $more
done
rm -r step-00000020
mv fork step-00000020 # a run of that name
succeeds "$sotto" train --resume step-00000020/ --out=step-00000020
says '^nothing is left to do: the run in step-00000020/ has 40 steps already'
succeeds "$sotto" train --resume step-00000020

# Data that have become others under the same name are told of; the same ones are not.
succeeds "$sotto" train --resume plain --steps=41
! grep -q 'training data' out || { cat out >&2; die "a warning about the same data"; }
cp book.txt kept.txt
echo "The end." >>book.txt
succeeds "$sotto" train --resume plain --steps=42
says '^warning: the training data have [0-9]+ tokens, and had [0-9]+ when the checkpoint was made'
mv kept.txt book.txt

# --check_memory=false is meant for one start: the next one checks again, whatever the last one said.
cp -r plain once
little=(env SOTTO_APART_MEMORY=1000 "$sotto" train --resume once --device=apart --steps=43)
fails_with 'the device has 1 KB left' "${little[@]}"
succeeds "${little[@]}" --check_memory=false
! grep -q '^changed: train.check_memory' out || die "told as a change: $(cat out)"
grep -qx 'check_memory = true' once/sotto.ini || die "kept: $(grep check_memory once/sotto.ini)"
fails_with 'the device has 1 KB left' "${little[@]}"

# A model to start from, which may be gone by then.
cp -r whole model
succeeds "${begin[0]}" train my.ini --init=model --data.vocab=0 --steps=20 --out=tuned
want=$(state)
succeeds "${begin[0]}" train my.ini --init=model --data.vocab=0 --steps=10 --out=again
rm -r model
succeeds "$sotto" train --resume again --steps=20
[ "$(state)" = "$want" ] || die "from --init: $(state), want $want"

# A method and its options, and another method, for which they are no longer meant.
group=("${begin[@]}" --workers=2 --strategy=co2 --tau=4)
succeeds "${group[@]}" --steps=20 --out=groups
want=$(state)
succeeds "${group[@]}" --steps=10 --out=half
cp -r half other
succeeds "$sotto" train --resume half --steps=20
[ "$(state)" = "$want" ] || die "co2: $(state), want $want"
succeeds "$sotto" train --resume other --steps=12 --strategy=ddp
says '^changed: strategy.preset co2 -> ddp$'
says "^continuing with ddp after ddp x co2: [0-9]+ values in the checkpoint that ddp has no use for are dropped \('outer.*' and others\)$"
! grep -q '^changed: co2' out || die "a key of a method that is gone: $(cat out)"

# Each group's own momentum under another number of groups.
own=("${begin[@]}" --workers=2 --steps=4)
succeeds "${own[@]}" --strategy=demo --rate=0.1 --out=own
for workers in 1 3; do
    cp -r own own$workers
    succeeds "$sotto" train --resume own$workers --steps=5 --workers=$workers
    said[workers]=$(grep "'decoupled.m'" out)
done
[ "${said[1]}" = "continuing with 1 group after 2: 'decoupled.m' of 1 group is dropped" ] || die "1 group: ${said[1]}"
[ "${said[3]}" = "continuing with 3 groups after 2: 'decoupled.m' of 1 group that the checkpoint does not have starts from zero" ] ||
    die "3 groups: ${said[3]}"

# ... and under another rule for it.
cp -r own scaled
succeeds "$sotto" train --resume scaled --steps=5 --strategy=random --random.momentum=scaled
says "^'decoupled.m' is dropped and starts from zero: it was made with momentum = plain, this run has scaled$"

# Of two keys that say the same the new one holds, also where it is the default.
cp -r own share
succeeds "$sotto" train --resume share --steps=5 --top=2
says '^changed: demo.rate 0.1 -> 0.03125$'
says '^changed: demo.top 0 -> 2$'
succeeds "$sotto" train --resume share --steps=6 --rate=1/32
says '^changed: demo.top 2 -> 0$'
succeeds "$sotto" train --resume share --steps=7 --top=3
succeeds "$sotto" train --resume share --steps=8 --rate=0.5
says '^changed: demo.top 3 -> 0$'
fails_with 'demo.top = 2 and demo.rate = 0.1 set the same' "$sotto" train --resume share --steps=9 --top=2 --rate=0.1

# Groups that are apart, as another number of them; and in step.
succeeds "${own[@]}" --strategy=every --every.n=3 --out=every
cp -r every steps
succeeds "$sotto" train --resume every --steps=5 --workers=3
says '^continuing with 3 groups after 2 whose parameters differed: all start with their average$'
succeeds "$sotto" train --resume steps --steps=5 --strategy=random
says '^continuing with 2 groups after 2 whose parameters differed: all start with their average$'

# A method's own optimizer stays without it; one without state gives way to another, which begins anew.
cp -r own anew
succeeds "$sotto" train --resume own --steps=5 --strategy=ddp
says '^unchanged since demo.base = demo-sgd: optim.kind = sgd$'
says '^unchanged since demo.base = demo-sgd: optim.weight_decay = 0$'
! grep -q '^changed: demo' out || die "a key of a method that is gone: $(cat out)"
succeeds "$sotto" train --resume anew --steps=6 --demo.base=decoupled-adamw
says '^changed: optim.kind sgd -> adamw$'
says '^changed: optim.beta2 0.95 -> 0.999$'
says '^unchanged since demo.base = demo-sgd: optim.weight_decay = 0$'
grep -aqE '"optim.t": ?"2"' anew/checkpoints/step-00000006/state.safetensors || die "moments of 2 steps count more"
fails_with "demo.base = decoupled-adamw continues with it" "$sotto" train --resume anew --steps=7 --demo.base=demo-sgd
succeeds "${own[@]}" --out=adamw
fails_with "demo.base = demo-sgd: the run in adamw has the optimizer 'adamw'" "$sotto" train --resume adamw --steps=6 --strategy=demo
succeeds "$sotto" train --resume adamw --steps=6 --strategy=demo --base=decoupled-adamw

# An optimizer with state whose state is not there: a checkpoint of SGD that says to be AdamW's.
rm -r adamw
succeeds "${own[@]}" --optim.kind=sgd --out=adamw
sed -i 's/^kind = sgd$/kind = adamw/' adamw/checkpoints/step-00000004/sotto.ini
fails_with "the optimizer was adamw, and the file has none of its state" "$sotto" train --resume adamw --steps=6

# What is said beside it, and what is refused. Nothing is written then.
succeeds "$sotto" train --resume part --steps=41 --optim.lr=0.5 --batch=2 --data.train=book.txt --optim.schedule=cosine
for change in 'train.batch 4 -> 2' 'optim.lr 0.003 -> 0.5' 'optim.schedule constant -> cosine' 'train.steps 40 -> 41' \
    "data.train $PWD/book.txt,stories:weather -> $PWD/book.txt"; do
    grep -qxF "changed: $change" out || { cat out >&2; die "no '$change'"; }
done
succeeds "$sotto" train --resume part --tokens=11k --dry_run # a length in another unit is the only one then
says '^changed: train.steps 41 -> not said$'
says '^changed: train.tokens 0 -> 11000$'
for steps in 15 42; do # it has these already
    succeeds "$sotto" train --resume=plain --steps=$steps
    says "^nothing is left to do: the run in plain has 42 steps already.* \(state [0-9a-f]{16}\)$"
    ! grep -q '^done' out || die "$steps of 42 steps: done"
done
ls -lR plain >before
for change in layers=3 model=gpt2 data.vocab=400 data.tokenizer=part init=part optim.kind=sgd; do
    fails_with "${change%=*}" "$sotto" train --resume plain --"$change"
done
fails_with "work is a folder: --resume $scratch/work continues the run in it" "$sotto" train "$scratch/work"
fails_with "there is no checkpoint in ../elsewhere to continue from" "$sotto" train --resume ../elsewhere
fails_with "--resume nowhere: there is no such folder" "$sotto" train --resume nowhere
for spelt in "--resume book.txt" "--resume=book.txt"; do
    fails_with "--resume book.txt: that is no folder, and --resume wants the folder of a run" "$sotto" train $spelt
done
fails_with "--resume wants the folder of a run" "$sotto" train --resume
fails_with "name two folders" "$sotto" train --resume plain --out=part
ls -lR plain >after
cmp before after || die "a refused run changed something"

# Damage: the checkpoint before is used, with a word why; with none left nothing is touched.
cp -r whole damaged
succeeds "$sotto" train --resume whole --steps=50
want=$(state)
newest=damaged/checkpoints/step-00000040
lines=$(head -n 20 whole/checkpoints/step-00000040/sotto.ini | wc -c) # a cut that leaves whole lines
cases=0
for damage in model.safetensors:-100 state.safetensors:4 config.json:20 sotto.ini:0 sotto.ini:100 sotto.ini:$lines \
    tokenizer.json:gone tokenizer.json:-1 state.safetensors:nan model.safetensors:nan files.txt:7; do
    cases=$((cases + 1))
    share_has $cases 3 || continue
    file=${damage%:*}
    rm -r damaged
    cp -r whole damaged
    rm -r damaged/checkpoints/step-00000050
    case ${damage#*:} in
    gone) rm $newest/$file ;;
    nan) # the last number of the file
        printf '\0\0\300\177' | dd of=$newest/$file bs=1 seek=$(($(stat -c %s $newest/$file) - 4)) conv=notrunc status=none ;;
    *) truncate -s "${damage#*:}" $newest/$file ;;
    esac
    succeeds "$sotto" train --resume damaged --steps=50
    says "^warning: checkpoint $newest is passed over: .*$file"
    says '^resuming from damaged/checkpoints/step-00000030$'
    [ "$(state)" = "$want" ] || die "after damage to $file: $(state), want $want"
done
cp -r whole/checkpoints/step-00000050 bad
printf '\0\0\300\177' | dd of=bad/model.safetensors bs=1 seek=$(($(stat -c %s bad/model.safetensors) - 4)) conv=notrunc status=none
fails_with "' holds values that are no numbers" "$sotto" train --init=bad --data.train=book.txt --steps=1 --out=none
rm -r damaged
cp -r whole damaged
for folder in damaged/checkpoints/step-*; do
    truncate -s -1 "$folder/state.safetensors"
done
ls -lR damaged >before
fails_with "no checkpoint in damaged/checkpoints can be read" "$sotto" train --resume damaged --steps=60
ls -lR damaged >after
cmp before after || die "a run without a checkpoint that can be read was written to"

# Written when 4 was the default of cdp.stages wherever stages follow from the workers: what was not said does not hinder.
cyclic=("${begin[@]}" --accumulate=1 --tied=no --clip=0 --warmup=0 --optim.schedule=constant --strategy=cdp --cdp.placement=pp --workers=2)
succeeds "${cyclic[@]}" --steps=4 --out=cyclic
want=$(state)
succeeds "${cyclic[@]}" --steps=2 --out=older
sed -i '/^\[cdp\]/,/^\[/s/^stages = 0$/stages = 4/' older/sotto.ini older/checkpoints/*/sotto.ini
grep -q '^stages = 4$' older/checkpoints/*/sotto.ini || die "nothing is older"
succeeds "$sotto" train --resume older --steps=4
[ "$(state)" = "$want" ] || die "with stages = 4 in its folder: $(state), want $want"

# Ctrl-C: the way on is a command that can be followed as it is.
"${begin[@]}" --steps=100000 --save_every=0 --out="a folder" >out 2>&1 &
pid=$!
await wrote 'step 5/' out
kill -INT $pid
wait $pid
way=$(sed -n 's/^to continue: //p' out)
[ "$way" = "$sotto train --resume 'a folder'" ] || { cat out >&2; die "the way on is: $way"; }
last=$((10#$(ls 'a folder/checkpoints' | sed 's/step-//')))
succeeds eval "$way --steps=$((last + 5))"
want=$(state)
succeeds "${begin[@]}" --steps=$((last + 5)) --save_every=0 --out=straight
[ "$(state)" = "$want" ] || die "the way on led to $want, straight on to $(state)"
exit 0
