# Images from a folder of classes to a model and its evaluation, and what is refused.
. "$(dirname "$0")/lib.bash"

# dark and bright pictures of 4 x 4, of which some have a spot
for split in train val; do
    for class in bright dark; do
        mkdir -p set/$split/$class
        for i in 1 2 3 4 5 6 7; do
            letter=$([ $class = dark ] && echo '!' || echo '~')
            { printf 'P5\n4 4\n255\n%s' "$i" && printf "%.0s$letter" {1..15}; } >set/$split/$class/$i.pgm
        done
    done
done
succeeds "$sotto" info set
says '^set: 14 images of 4 x 4 x 3 in 2 classes, 2 sources; mean 0\.'
says '^  class 1 +7 images  dark$'
says '^for validation: 14 images$'

small=(--model=mlp --mlp.hidden=8 --data.train=set --batch=4 --threads=1 --lr=0.02 --warmup=0 --log_every=10)
succeeds "$sotto" train "${small[@]}" --steps=20 --out=run --workers=2 --eval_batches=0
says '^model: mlp over images of 4 x 4 x 3: '
says '^data: 14 images of 2 classes in 2 sources, mean '
says '^step 20/20 .* images/s'
says 'top-1 100.00%, top-5 100.00% of 14 images$'
says '^160 images in '
says '^done: run is a model folder that sotto alone reads'
grep -q '"eval/top5"' run/metrics.jsonl || die "no top-5 in the metrics"
succeeds "$sotto" eval run --data.valid=set --logits=logits.safetensors
says '^loss [0-9.]+  top-1 100.00%  top-5 100.00%  images 14$'
[ -s logits.safetensors ] || die "no logits"
succeeds "$sotto" info run
says 'mlp over images of 4 x 4 x 3, 2 classes'
succeeds "$sotto" train "${small[@]}" --dry_run --out=dry --samples=40
says '^length: 10 rounds, each of 4 images; 2.86 times through the data$'
succeeds "$sotto" train --resume run --steps=22
says 'resuming from'

# a preset beside a folder has to be the folder's
succeeds "$sotto" train "${small[@]}" --steps=2 --init=run --out=again --eval_batches=0
fails_with 'model.preset = resnet8, which has model.arch = resnet, but the model in run has mlp' \
    "$sotto" train --model=resnet8 --data.train=set --batch=4 --steps=2 --init=run --out=other

# classes by the model's names, in whatever order and number, and no others
mv set/val/dark set/val/dim
fails_with "set/val has classes that the model does not know: 'dim'; it knows 'bright', 'dark'" "$sotto" eval run --data.valid=set
mv set/val/dim set/val/dark
mv set/val/bright bright
succeeds "$sotto" eval run --data.valid=set
says '^loss [0-9.]+  top-1 100.00%.* images 7$'
mkdir -p other/amber other/dark
cp bright/* other/amber
cp set/val/dark/* other/dark
fails_with "other has classes that the model does not know: 'amber'" "$sotto" train --resume run --steps=24 --data.train=other
mv bright set/val/bright

# a name that is not UTF-8, as config.json has to be
mkdir -p latin/dark "latin/caf$(printf '\351')"
cp set/val/dark/* latin/dark
cp set/val/bright/* latin/caf?
succeeds "$sotto" train "${small[@]/=set/=latin}" --steps=20 --out=latin-run --eval_batches=0
grep -qF '"caf\\xE9"' latin-run/config.json || die "config.json: $(cat latin-run/config.json)"
succeeds "$sotto" eval latin-run --data.valid=latin
says '^loss [0-9.]+  top-1 100.00%.* images 14$'
succeeds "$sotto" train --resume latin-run --steps=22
mkdir 'latin/caf\xE9'
fails_with 'folder latin has two classes called caf\xE9, one not in UTF-8' "$sotto" train "${small[@]/=set/=latin}" --out=no

# what is left out, or has no effect, is told
mkdir -p odd/train odd/bus/more
cp set/val/dark/1.pgm odd/train
cp set/val/dark/2.pgm odd/bus
cp set/val/dark/* odd/bus/more
ln -s nowhere odd/bus/9.pgm
succeeds "$sotto" info odd
says '^odd: 2 images of 4 x 4 x 3 in 2 classes'
says '^  class 1 +1 images  train$'
says 'odd: files in folders inside the folders of classes are not read: 7$'
says 'odd: dangling links are left out: 1$'
printf 'P5\n5 4\n255\n01234567890123456789' >odd/train/2.pgm
fails_with 'is of 4 x 5, the images before it of 4 x 4: set image_size' "$sotto" info odd
succeeds "$sotto" info odd --image_size=6
says '^odd: 3 images of 6 x 6 x 3'
fails_with 'seq has no effect: images are only counted' "$sotto" info odd --seq=4
fails_with 'seq has no effect: the model reads images' "$sotto" info run --seq=4
fails_with 'image_size has no effect: the model reads text' "$sotto" info gpt2 --image_size=44
fails_with 'data.crop has no effect: evaluations see images as they are' "$sotto" eval run --data.valid=set --data.crop=1
fails_with 'data.crop = 4 moves images of 4 x 4 out of sight' "$sotto" train "${small[@]}" --data.crop=4 --out=no
fails_with 'data.mean = 128, data.std = 60: values are from 0 to 1' "$sotto" train "${small[@]}" --data.mean=128 --data.std=60 --out=no
succeeds "$sotto" train "${small[@]}" --dry_run --out=dry --workers=3 --data.sharding=source --data.holdout=0.2
says 'data.sharding = source: 3 workers share 2 sources, so some read the same$'
says 'data.holdout = 0.2 has no effect: the data have a part for that$'

fails_with 'holds a model of images' "$sotto" sample run
fails_with 'the model reads images' "$sotto" eval run --data.valid=set --seq=9
fails_with 'set holds images, and the model reads text' "$sotto" train --data.train=set --out=no
fails_with 'data.flip has no effect: it is for images' "$sotto" train "${tiny[@]}" --data.flip=true --out=no
fails_with 'train.tokens = 5: the model reads images' "$sotto" train "${small[@]}" --tokens=5 --out=no
printf 'P5\n4 4\n255\nshort' >set/train/dark/3.pgm
fails_with 'set/train/dark/3.pgm ends too soon' "$sotto" train "${small[@]}" --out=no
[ ! -e no ] || [ -z "$(ls -A no)" ] || die "a refused run left $(ls -A no)"
