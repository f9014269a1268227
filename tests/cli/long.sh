# Values of thousands of characters: inline, from files and comparisons, through a checkpoint, and prompts from elsewhere.
. "$(dirname "$0")/lib.bash"

# 1,000 workers with a speed each; the slowest, at the end of the list, sets the time
speeds=$(printf '1.0001,%.0s' {1..999})0.25
null=(--oracle=null --time=virtual --workers=1000 --null.parameters=1000 --worker.step=10ms --steps=2)
succeeds "$sotto" train "${null[@]}" --worker.speed="$speeds" --out=inline
printf '[worker]\nspeed = %s\n' "$speeds" >speeds.ini
succeeds "$sotto" train speeds.ini "${null[@]}" --out=file
seconds() { sed -n 's/.*"seconds": \([0-9.e-]*\).*/\1/p' "$1/report.json"; }
[ -n "$(seconds inline)" ] && [ "$(seconds inline)" = "$(seconds file)" ] ||
    die "1,000 speeds: $(seconds inline) inline, $(seconds file) from a file"
awk -v s="$(seconds file)" 'BEGIN {exit !(s >= 0.08)}' || die "two steps of the slowest take 0.08 s, got $(seconds file)"
fails_with "want numbers from 0.001 to 1000 with commas, got 'x'" "$sotto" train "${null[@]}" --worker.speed="${speeds}5,x" --out=x --workers=1001

# 100 files of names that make a list of 9,000 characters
folder=$(printf 'n%.0s' {1..80})
mkdir "$folder"
list=
for i in {1..100}; do
    printf 'Anna and Ben went to lake %d. They found a red boat.\n' $i $i $i $i $i >"$folder/$i.txt"
    list=$list,$folder/$i.txt
done
list=${list#,}
files=("${tiny[@]}" --data.format=text --steps=2 --seq=16 --data.holdout=0)
succeeds "$sotto" train "${files[@]}" --data.train="$list" --out=run
says ' in 100 sources'
state=$(grep -o 'state [0-9a-f]*' out)
succeeds "$sotto" train run/checkpoints/step-00000002/sotto.ini --out=again
[ "$(grep -o 'state [0-9a-f]*' out)" = "$state" ] || die "the saved configuration gives another run"
{ echo '[base]'
  printf '%s\n' "${files[@]}" | sed 's/^--//; s/=/ = /' | tac | awk '!seen[$1]++' # a file has each key once
  echo '[run a]'
  echo "data.train = $list"
} >files.ini
succeeds "$sotto" compare files.ini --plot=false
cmp run/model.safetensors files/a/model.safetensors || die "a comparison's run of the same files differs"
succeeds "$sotto" compare files.ini --plot=false
says 'was done before'
succeeds "$sotto" tokenize train --input="$list" --vocab=300 --out=tokenizer.json

# a name that is not UTF-8 still gives a report that can be read
cp "$folder/1.txt" $'caf\xe9.txt'
printf 'Anna and Ben went to the lake.\n%.0s' {1..40} >>$'caf\xe9.txt'
succeeds "$sotto" train "${files[@]}" --data.train=$'caf\xe9.txt' --out=latin
grep -qF '"data.train": "caf?.txt"' latin/report.json || die "report.json: $(cat latin/report.json)"

# prompts: inline, from a file and from standard input are the same
prompt=$(printf 'Anna and Ben went to the lake. %.0s' {1..100})
printf '%s\n' "$prompt" >prompt.txt
sample=("$sotto" sample run --tokens=5 --seed=3)
succeeds "${sample[@]}" --prompt="$prompt"
cp out inline.txt
grep -qF -- "$prompt" out || die "the prompt is not there"
for from in @prompt.txt - @-; do
    "${sample[@]}" --prompt=$from <prompt.txt >out 2>&1 || { cat out; die "--prompt=$from"; }
    cmp out inline.txt || die "--prompt=$from gives another text"
done
succeeds "${sample[@]}" --prompt=@@home
says '^@home'
fails_with "prompt: " "${sample[@]}" --prompt=@missing.txt
printf 'a\0b' >zero
fails_with "contains a zero byte" "${sample[@]}" --prompt=@zero
exit 0
