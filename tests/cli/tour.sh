# Every subcommand once, as a user would go through them.
. "$(dirname "$0")/lib.bash"

succeeds "$sotto" --version
says '^sotto [0-9]'
succeeds "$sotto" help
for command in train compare eval sample tokenize info; do
    grep -q "^  $command " out || die "help does not list $command"
    "$sotto" $command --help all >help || die "$command --help"
    grep -q "^usage: sotto $command" help || die "$command --help has no usage"
    grep -q "^  sotto $command" help || die "$command --help has no example"
    grep -q '^  --' help || die "$command --help lists no options"
done

succeeds "$sotto" info
says '^MPI: (Open MPI v[0-9]|MPICH [0-9]|not in this build)'
if command -v gnuplot >/dev/null; then says "^gnuplot: /.*/gnuplot$"; fi
PATH=/nowhere "$sotto" info >out || die "info without a PATH"
says '^gnuplot: not installed'
says '^gpt2 +124439808'
succeeds "$sotto" info gpt2 --batch=4 --seq=256
says "^  scratch +[0-9.]+ +[0-9.]+$"
says "^  together +[0-9.]+ +[0-9.]+$"
says '^  optimizer +995.5 +1493.3'

# stories as text, through the tokenizer and back
printf 'Anna and Ben went to the lake. They found a red boat.\nThe end.\n%.0s' {1..40} >text
succeeds "$sotto" tokenize train --input=text --vocab=300 --out=tokenizer.json
succeeds "$sotto" tokenize encode --tokenizer=tokenizer.json --input=text --out=text.bin --ids=text.ids
says '^encode: [0-9]+ tokens'
"$sotto" tokenize decode --tokenizer=tokenizer.json --input=text.bin >back || die "decode of a token file"
cmp text back || die "text.bin does not decode to the text"
"$sotto" tokenize decode --tokenizer=tokenizer.json <text.ids --input=- >back || die "decode of ids"
cmp text back || die "text.ids does not decode to the text"
"$sotto" tokenize encode --tokenizer=tokenizer.json --input=text --ids=- 2>summary >piped || die "encode --ids=-"
cmp text.ids piped || die "encode --ids=- prints other ids than it writes"
grep -q '^encode: [0-9]* tokens' summary || die "encode --ids=- does not sum up: $(cat summary)"

succeeds "$sotto" train "${tiny[@]}" --out=run --steps=10
says 'step 10/10'
says 'held-out loss'
says 'is a Hugging Face model folder'
for file in config.json model.safetensors tokenizer.json metrics.jsonl; do
    [ -s run/$file ] || die "run/$file is missing"
done
[ "$(ls run/events.out.tfevents.* | wc -l)" = 1 ] || die "no event file"
# the report tells what was run
for line in "\"version\": \"$("$sotto" --version | sed 's/sotto //')\"" '"method": "ddp"' '"engine": "threads"' '"model": "llama of 2 layers, width 32"' \
            '"train.steps": "10"' '"model.width": "32"' '"link_inter": ""' '"cluster": "1 node x 1 worker"' '"nodes": 1'; do
    grep -qF -- "$line" run/report.json || die "report.json has no $line: $(cat run/report.json)"
done
grep -q "\"state\": \"$(sed -n 's/.*(state \([0-9a-f]*\)).*/\1/p' out)\"" run/report.json || die "report.json has another state"
! grep -q '"optim.lr"' run/report.json || die "report.json lists what is at its default"

succeeds "$sotto" sample run --prompt='Once' --tokens=20 --seed=3
cp out first
succeeds "$sotto" sample run --prompt='Once' --tokens=20 --seed=3
cmp out first || die "the same seed gave another sample"
succeeds "$sotto" sample run --prompt='Once' --tokens=20 --temperature=0
# a sample ends at any of the tokens that generation_config.json names
cp out greedy
cp -r run stops
"$sotto" sample run --prompt='Once' --tokens=1 --temperature=0 >one || die "one token"
next=$(sed 's/^Once//' one | tr -d '\n' | "$sotto" tokenize encode --tokenizer=run --input=- --special=false)
echo "{\"eos_token_id\": [290, $next]}" >stops/generation_config.json
succeeds "$sotto" sample stops --prompt='Once' --tokens=20 --temperature=0
[ "$(cat out)" = Once ] || die "$next does not end the sample: $(cat out)"
succeeds "$sotto" sample stops --prompt='Once' --tokens=20 --temperature=0 --stop_at_end=false
cmp out greedy || die "--stop_at_end=false stops"
# an instruction is the prompt of its template, which a file holds with a line break more
template=$(printf 'Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n%s' \
    $'### Instruction:\nGo.\n\n### Response:\n.')
template=${template%.}
printf '%s\n' "$template" >template.txt
succeeds "$sotto" sample run --prompt="$template" --tokens=9 --temperature=0
cp out asked
succeeds "$sotto" sample run --prompt=@template.txt --tokens=9 --temperature=0
cmp out asked || die "a prompt from a file has other line breaks"
succeeds "$sotto" sample run --instruction=Go. --tokens=9 --temperature=0
printf %s "$template" | cat - out | cmp - asked || die "an instruction has another answer than its template: $(cat out asked)"
fails_with 'prompt and instruction: one of them is answered' "$sotto" sample run --instruction=Go. --prompt=Go.
succeeds "$sotto" sample --model=run --tokens=5 --count=2 --top_k=5
says '^---$'

printf '{"text": "Anna and Ben went to the lake."}\n{"text": "They found a red boat."}\n' >words.jsonl
succeeds "$sotto" eval run --data.valid=text --last_words=words.jsonl --logits=logits.safetensors --batch=2
says '^loss [0-9.]+  perplexity'
says '^last words: loss [0-9.]+ .* texts 2$'
[ -s logits.safetensors ] || die "no logits"
# at the length that it was trained with, though it has more positions; shorter for a short text
succeeds "$sotto" train "${tiny[@]}" --out=short --seq=16 --steps=2 --device=cpu:baseline
grep -qF '"kernels": "baseline"' short/report.json || die "report.json tells of other kernels: $(cat short/report.json)"
for folder in short short/checkpoints/step-00000002; do
    succeeds "$sotto" eval $folder --data.valid=text
    says '  seq 16$'
done
succeeds "$sotto" eval short --data.valid=text --seq=32
says '  seq 32$'
fails_with "seq = 64 is longer than the model's 32 positions" "$sotto" eval short --data.valid=text --seq=64
rm short/sotto.ini
succeeds "$sotto" eval short --data.valid=text
says '  seq 32$'
printf 'The end.' >end
succeeds "$sotto" eval run --data.valid=end
says '  tokens [1-9]'

# a tokenizer that begins every text with a token: as if that token stood in the prompt or text
cp -r run begins
sed -i '/^  "post_processor": {/,/^  },/c\  "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "E", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"E": {"id": "E", "ids": [0], "tokens": ["<|endoftext|>"]}}},' \
    begins/tokenizer.json
"$sotto" sample run --prompt='<|endoftext|>Once' --tokens=20 --temperature=0 | sed 's/^<|endoftext|>//' >with || die sample
"$sotto" sample begins --prompt='Once' --tokens=20 --temperature=0 >without || die "sample with a template"
cmp with without || die "a prompt does not begin as the tokenizer says"
sed 's/: "/: "<|endoftext|>/' words.jsonl >begun.jsonl
"$sotto" eval run --last_words=begun.jsonl >with || die "eval"
"$sotto" eval begins --last_words=words.jsonl >without || die "eval with a template"
cmp with without || die "the texts of last words do not begin as the tokenizer says"
[ "$(printf Anna | "$sotto" tokenize encode --tokenizer=begins --input=- | cut -d' ' -f1)" = 0 ] || die "encode"
[ "$(printf Anna | "$sotto" tokenize encode --tokenizer=begins --input=- --special=false)" = \
    "$(printf Anna | "$sotto" tokenize encode --tokenizer=run --input=-)" ] || die "encode --special=false"

# options: file, overrides, and the configuration that a run leaves behind reproduces it
cat >my.ini <<END
[train]
steps = 10        ; overridden below
out = from-file
[optim]
lr = 2e-3         # a comment
END
succeeds "$sotto" train my.ini "${tiny[@]}" --steps=4
says 'step 4/4'
state=$(grep -o 'state [0-9a-f]*' out)
grep -q '^lr = 0.002$' from-file/checkpoints/step-00000004/sotto.ini || die "the run's own configuration"
succeeds "$sotto" train from-file/checkpoints/step-00000004/sotto.ini --out=again
[ "$(grep -o 'state [0-9a-f]*' out)" = "$state" ] || die "the saved configuration gives another run"

# fine-tuning from a folder
succeeds "$sotto" train "${tiny[@]}" --layers=0 --width=0 --heads=0 --positions=0 --data.vocab=0 --init=run --out=tuned --steps=3
exit 0
