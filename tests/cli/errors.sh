# Bad input: a clear message, a non-zero exit, nothing lost.
. "$(dirname "$0")/lib.bash"

train=("$sotto" train "${tiny[@]}" --out=run --steps=2)
fails_with "unknown command 'trian': did you mean 'train'?" "$sotto" trian
fails_with "did you mean 'optim.weight_decay'?" "${train[@]}" --optim.weight_decai=1
fails_with "unknown key 'stratgy': did you mean 'strategy'?" "${train[@]}" --stratgy=ddp
fails_with "unknown key 'xyzzyxyzzy'" "${train[@]}" --xyzzyxyzzy=1
fails_with "is out of range" "${train[@]}" --optim.beta1=1.5
fails_with "want an integer" "${train[@]}" --steps=ten
fails_with "want true or false" "${train[@]}" --recompute=maybe
fails_with "want one of adamw, sgd" "${train[@]}" --optim.kind=adam
fails_with "demo.base = demo-sgd: optim.beta2 = 0.9 has no effect" "${train[@]}" --strategy=demo --optim.beta2=0.9
fails_with "sotto: optim.step_every = 7 has no effect" "${train[@]}" --strategy=demo --optim.step_every=7
fails_with "'decay' is optim.decay, not demo.decay: " "${train[@]}" --strategy=demo --decay=0.99
fails_with "demo.momentum = 0.9: want one of plain, scaled" "${train[@]}" --strategy=demo --demo.momentum=0.9
fails_with "wants a value" "${train[@]}" --batch
fails_with "unknown preset 'nanoo': did you mean 'nano'?" "${train[@]}" --model.preset=nanoo
fails_with "unknown preset 'llama': this is an architecture: --model.arch=llama, " "${train[@]}" --model=llama
fails_with "ambiguous: use model.preset or strategy.preset; 'llama' is also a value of model.arch" "${train[@]}" --preset=llama
fails_with "No such file" "$sotto" train missing.ini
fails_with "No such file" "${train[@]}" --data.train=missing.txt --data.format=text
printf '[train]\nsteps = 3\nbach = 2\n' >bad.ini
fails_with "bad.ini:3: unknown key 'train.bach': did you mean 'train.batch'?" "$sotto" train bad.ini
printf '[trian]\n' >bad.ini
fails_with "bad.ini:1: unknown section [trian]: did you mean [train]?" "$sotto" train bad.ini
printf 'no equals sign\n' >bad.ini
fails_with "bad.ini:1: want 'key = value'" "$sotto" train bad.ini
head -c 100 /dev/zero >bad.ini
fails_with "not a text file" "$sotto" train bad.ini
fails_with "longer than the model's 32 positions" "${train[@]}" --seq=64
fails_with "heads = 3 do not divide width" "${train[@]}" --heads=3
fails_with "heads = 3 do not divide width" "${train[@]}" --heads=3 --arch=gpt2
fails_with "train.workers: 20000 workers are more than this process can run as threads" "${train[@]}" --workers=20000
large=(--batch=1048576 --width=1024 --layers=24)
fails_with "this run needs about" "${train[@]}" "${large[@]}"
says ' left: activations [0-9.]+ TB, scratch [0-9.]+ TB, optimizer [0-9.]+ GB'
says 'A smaller train.batch or train.seq, '
fails_with "this run needs about" "${train[@]}" --workers=64 --width=8192 --layers=64 --batch=1
says 'A smaller model, fewer workers, or a shard method that gives each a part'
if (ulimit -v 4000000 && "$sotto" version) >/dev/null 2>&1; then # sanitizers reserve more than that
    (ulimit -v 4000000 && fails_with "the limit on address space (ulimit -v) has" "${train[@]}" "${large[@]}") || exit 1
    (ulimit -v 4000000 && fails_with "no memory for" "${train[@]}" --batch=1048576 --check_memory=false) || exit 1
    (ulimit -s 8192 -v 4000000 && fails_with "train.threads: cannot start 1023 more threads, only " "${train[@]}" --threads=1024) || exit 1
    (ulimit -s 1024 && succeeds "${train[@]}" --threads=2 --out=small-stack) || exit 1
fi
[ ! -e run ] || die "refused runs left $(ls -dA run run/*)"

: >empty.txt
fails_with "empty.txt" "${train[@]}" --data.format=text --data.train=empty.txt
echo "far too short" >short.txt
fails_with "one sequence needs" "${train[@]}" --data.format=text --data.train=short.txt --data.holdout=0
echo '{"no": "text"}' >bad.jsonl
fails_with "bad.jsonl" "${train[@]}" --data.format=jsonl --data.train=bad.jsonl
echo '{"text": ' >bad.jsonl
fails_with "bad.jsonl" "${train[@]}" --data.format=jsonl --data.train=bad.jsonl
# The command of a message makes data that are read; what it makes, where there is jq to run it.
converts() {
    local made
    fails_with 'OLD >NEW.jsonl' "${train[@]}" --data.format=auto --data.train=old.jsonl
    ! command -v jq >/dev/null && return
    made=$(eval "$(grep -o "jq -c '.*' OLD" out | sed 's/OLD$/old.jsonl/')")
    [ "$made" = "$1" ] || die "$(cat out): $made"
}
echo '{"prompt": "q", "chosen": "a", "rejected": "b"}' >old.jsonl
converts '{"prompt":"q","completion":"a"}'
user='{"role":"user","content":"q"}' answer='{"role":"assistant","content":"a"}'
printf '%s\n' "[{\"prompt\": \"q\", \"chosen\": [$user,$answer], \"rejected\": []}," \
    "{\"prompt\": [$user], \"chosen\": [$answer], \"rejected\": []}]" >old.jsonl
converts "{\"messages\":[$user,$answer]}
{\"messages\":[$user,$answer]}"
printf '%s\n' '{"text": "t"}' '{"prompt": "q", "completion": "a"}' >old.jsonl
made='{"prompt":"","completion":"t"}
{"prompt":"q","completion":"a"}'
converts "$made"
tac old.jsonl >other.jsonl && mv other.jsonl old.jsonl
converts "$(tac <<<"$made")"
echo '[1, 2' >bad.json
fails_with "bad.json" "${train[@]}" --data.format=instruct --data.train=bad.json
echo '{"model": 3}' >bad-tokenizer.json
fails_with "bad-tokenizer.json" "${train[@]}" --data.tokenizer=bad-tokenizer.json
head -c 1000 /dev/urandom >bad.bin
fails_with "bad.bin" "${train[@]}" --data.format=tokens --data.train=bad.bin

# data that nobody named: nothing is made up
fails_with "no training data is named: set --data.train=FILE" "$sotto" train --out=run
fails_with "no training data is named: set --data.train=FILE" "$sotto" train --out=run --data.valid=short.txt

printf 'Anna and Ben went to the lake. They found a red boat.\n%.0s' {1..40} >text
succeeds "${train[@]}"
fails_with "nothing to evaluate on: set --data.valid=FILE or --last_words=FILE" "$sotto" eval run
echo '{"text": "They found a red boat."}' >words.jsonl
succeeds "$sotto" eval run --last_words=words.jsonl
[ "$(wc -l <out)" = 1 ] || die "last words alone, but: $(cat out)"
printf '\0\n{"text": "They found a red boat."}\n' >>words.jsonl
fails_with "words.jsonl:2: not valid JSON" "$sotto" eval run --last_words=words.jsonl
echo '{"text": "They found a \u0000"}' >words.jsonl
succeeds "$sotto" eval run --last_words=words.jsonl
mkfifo pipe
fails_with "pipe is a pipe, want a regular file" timeout 300 "$sotto" eval run --last_words=pipe
fails_with "already holds a run of 2 steps" "${train[@]}"
fails_with "model.layers = 3, but the model in" "${train[@]}" --resume --layers=3
fails_with "vocabulary of 300 tokens, the model has 100" "${train[@]}" --out=other --model.vocab=100 --data.vocab=300

# tokenizers: one that is another model's, one that would be trained for a model that has its own
"$sotto" tokenize train --input=words.jsonl --vocab=270 --out=other.json >out || die "tokenize train"
fails_with "is not that of the model in run (300 tokens)" "$sotto" sample run --tokenizer=other.json --prompt=A
fails_with "is not that of the model in run (300 tokens)" "$sotto" eval run --data.tokenizer=other.json --data.valid=text
tune=("$sotto" train --data.train=stories --data.stories=50 --init=run --out=tuned --steps=1)
fails_with "is not that of the model in run (300 tokens)" "${tune[@]}" --data.tokenizer=other.json
fails_with "model.layers = 3, but the model in run has 2" "${tune[@]}" --layers=3
fails_with "model.preset = gpt2, which has model.arch = gpt2, but the model in run has llama" "${tune[@]}" --model=gpt2
fails_with "model.preset = diloco-60m, which has model.layers = " "${tune[@]}" --model=diloco-60m --arch=llama
fails_with "unknown preset 'gpt3'" "${tune[@]}" --model=gpt3
fails_with "data.vocab = 300 has no effect with the tokenizer in run" "${tune[@]}" --data.vocab=300
fails_with "data.vocab = 300 has no effect with the tokenizer in other.json" "$sotto" train \
    --data.train=stories --out=tuned --data.vocab=300 --data.tokenizer=other.json
fails_with "data.vocab = 100: want at least 257" "$sotto" train --data.train=stories --out=tuned --data.vocab=100
fails_with "data.vocab = 300 has no effect" "$sotto" eval run --data.valid=text --data.vocab=300
succeeds "$sotto" sample run --tokenizer=run/tokenizer.json --prompt=A --tokens=1
cp -r run bare
rm -r bare/checkpoints
cp bare/model.safetensors kept
fails_with "train.out = bare holds a model that no run made there" "${tune[@]}" --init=bare --out=bare
fails_with "train.out = bare holds a model that no run made there" "${train[@]}" --out=bare --resume
cmp kept bare/model.safetensors || die "a model that was there is lost"

# Nor a part of one, but for the tokenizer that is trained with, nor a configuration.
mkdir part
for file in tokenizer.json sotto.ini; do
    echo '; mine' >part/$file
    fails_with "train.out = part holds a file that no run made there ($file), which training would" "${train[@]}" --out=part
    [ "$(ls -A part):$(cat part/$file)" = "$file:; mine" ] || die "in a folder with $file: $(ls -A part)"
    rm part/$file
done
cp run/tokenizer.json part
succeeds "$sotto" train --data.train=stories --data.stories=50 --layers=1 --width=32 --heads=2 --data.tokenizer=part --out=part --steps=1
cmp run/tokenizer.json part/tokenizer.json || die "a tokenizer that was there is another"

# Nor are results of a finished run that saved nothing; those of one that was stopped, or simulated, are.
results=("$sotto" train "${tiny[@]}" --save=false --steps=2 --out=results)
succeeds "${results[@]}"
cp -r results kept.results
for again in --save=true --resume --dry_run; do
    fails_with "results already holds a finished run of 2 steps, which saved no checkpoint" "${results[@]}" $again
done
diff -r -x .lock kept.results results || die "what a finished run left has changed"
sed -i 's/"complete": true/"complete": false/' results/report.json
succeeds "${results[@]}"
for _ in 1 2; do
    succeeds "$sotto" train --oracle=null --time=virtual --null.parameters=1000 --worker.step=10ms --steps=2 --out=simulated
done

rm bare/tokenizer*.json
fails_with "is text: it needs a tokenizer (data.tokenizer)" "${tune[@]}" --init=bare
fails_with "sotto: tokenize encode: 'h.txt' is a word too many: a file is named with --input=h.txt" "$sotto" tokenize encode h.txt
fails_with "tokenize: unknown 'enc': want one of" "$sotto" tokenize enc
"$sotto" tokenize encode --tokenizer=run --input=text --out=text.bin >out || die "tokenize encode"
printf '{"model": {"type": "WordLevel"}}' >bare/tokenizer.json # of a kind that is not known here
fails_with 'a model of type "WordLevel" is not supported, only BPE, Unigram, WordPiece' "${tune[@]}" --init=bare
succeeds "${tune[@]}" --init=bare --data.train=text.bin --data.holdout=0
says 'training without the model.s tokenizer'
says '^warning: train.init with the default learning rate 0.001, .* such as --lr=2e-5$'
cmp bare/tokenizer.json tuned/tokenizer.json || die "the tokenizer that could not be used is lost"
succeeds "${tune[@]}" --init=bare --data.train=text.bin --data.holdout=0 --lr=1e-3 --out=chosen
! grep 'learning rate' out || die "a rate that was chosen is warned of"

# models on disk
cp -r run model
truncate -s -100 model/model.safetensors
fails_with "model" "$sotto" sample model
cp run/model.safetensors model/
printf '\xff\xff\xff\xff\xff\xff\xff\x7f' | dd of=model/model.safetensors bs=1 conv=notrunc 2>/dev/null
fails_with "model" "$sotto" sample model
cp run/model.safetensors model/
sed -i 's/"hidden_size": 32/"hidden_size": 64/' model/config.json
fails_with "[300,32]" "$sotto" sample model
# sizes that no memory has: the shapes are compared before any is taken
sed -i 's/"hidden_size": 64/"hidden_size": 8192/; s/"vocab_size": 300/"vocab_size": 16777216/' model/config.json
fails_with "[300,32], want [16777216,8192]" "$sotto" sample model
fails_with "[300,32], want [16777216,8192]" "$sotto" train --init=model --out=huge --data.train=stories --data.stories=50 --seq=16
sed -i 's/"model_type": "llama"/"model_type": "mamba"/' model/config.json
fails_with "model_type 'mamba' is not supported" "$sotto" sample model
echo '{' >model/config.json
fails_with "config.json is not valid JSON" "$sotto" sample model
fails_with "is not a folder with a model" "$sotto" sample nowhere
mkdir empty
echo "some text" >some.txt
mkfifo pipe
for init in nowhere some.txt empty pipe; do # said before what that model's tokenizer would be for
    fails_with "$init is not a folder with a model" "$sotto" train --init=$init --data.train=some.txt --out=none
done
cp run/config.json model/
mv model/model.safetensors model/pytorch_model.bin
fails_with "a format that only Python reads" "$sotto" sample model

# a loss that is no number: the step is named, the last good checkpoint stays
fails_with "step " "${train[@]}" --data.stories=200 --out=nan --steps=100 --save_every=1 --optim.kind=sgd --optim.lr=900 --optim.schedule=constant
says 'the last good checkpoint is nan/checkpoints/'
says ': training has diverged; try a lower optim.lr \(now 900\), a longer optim.warmup \(now [0-9]* steps\) or optim.clip = [0-9.]* \(now [0-9.]*(, off)?\)$'
says "^to continue with a tenth of the learning rate: $sotto train --resume nan --optim.lr=90$"
last=$(sed -n 's/^the last good checkpoint is //p' out)
step=$((10#${last##*-}))
says "^its parameters may have diverged already: if the command below fails at step $((step + 1)) again, remove $last, and the command continues "
succeeds "$sotto" sample "$last" --tokens=1 --prompt=A
# With checkpoints further apart than that the last one is older.
fails_with "step " "${train[@]}" --out=older --steps=100 --save_every=1000 --save_minutes=0 --optim.kind=sgd --optim.lr=900 \
    --optim.schedule=constant
! grep -q 'may have diverged already' out || die "a checkpoint that there is not has diverged"

fails_with ": training has diverged; try a lower optim.lr (now 900), diloco.outer_lr (now 0.7)" "${train[@]}" --out=none --steps=100 \
    --workers=2 --strategy=diloco --diloco.H=3 --optim.lr=900 --optim.schedule=constant --optim.warmup=0
says '^there is no checkpoint to continue from$'
fails_with ": training has diverged; try a lower optim.lr (now 900), async-diloco.outer_lr (now 0.7)" "${train[@]}" --out=none --steps=100 \
    --workers=2 --strategy=async-diloco --H=50 --optim.lr=900 --optim.schedule=constant --optim.warmup=0

# two writers, and a folder that cannot be written
"${train[@]}" --out=busy --steps=100000 >busy.log 2>&1 &
pid=$!
await wrote 'step 5/' busy.log
fails_with "$pid" "${train[@]}" --out=busy --resume
[ ! -e busy/checkpoints ] || die "it is not before its first checkpoint"
fails_with "run folder busy is being written by process $pid on $(uname -n)" "$sotto" train --resume busy
kill -INT $pid
wait $pid
: >file
fails_with "file" "${train[@]}" --out=file/run
exit 0
