/* What tests of runs over images begin with: a set whose classes are easily told apart; and what a
 * run's folder says of it. */
#ifndef SOTTO_TESTS_TRAIN_IMAGE_LAB_H
#define SOTTO_TESTS_TRAIN_IMAGE_LAB_H

#include "data/pictures.h"
#include "train/fixture.h"

#include "hf/evaluate.h"
#include "hf/loaded_model.h"

/* Noise with one bright quarter, whose place is the class. */
static inline void make_quarters(const char *images, const char *labels, int count, int side,
                                 uint64_t seed)
{
    size_t size;
    uint8_t *data = idx_bytes(count, side, side, &size);
    struct rng rng = rng_make(seed, 1);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < side * side; k++) {
            const int quarter = k / side / (side / 2) * 2 + k % side / (side / 2);
            data[16 + i * side * side + k] =
                (uint8_t)(rng_below(&rng, 90) + (quarter == i % 4 ? 120 : 0));
        }
    make_file(images, data, size);
    make_idx(labels, count, 0, 0);
    free(data);
}

/* A set-up of cmocka's needs its sizes: scratch/set, with a part to evaluate with. */
static inline int make_image_set(void **state, int side, int train, int test)
{
    if (scratch_make(state) != 0)
        return -1;
    make_folder("set");
    make_quarters("set/train-images-idx3-ubyte", "set/train-labels-idx1-ubyte", train, side, 1);
    make_quarters("set/t10k-images-idx3-ubyte", "set/t10k-labels-idx1-ubyte", test, side, 2);
    return 0;
}

/* What was published, loaded again, has the loss and the hits that were reported. */
static inline void assert_evaluates(struct loaded_model *l, int rows, const struct evaluation *want)
{
    static struct data_config data;
    const int *dims = l->model.sample.dims;
    const struct images_setup setup = {
        .height = dims[0], .width = dims[1], .channels = dims[2], .processor = &l->processor};
    const struct evaluation_range range = {
        .rows = rows, .t = 1, .parts = 1, .state = l->state.view};
    struct loader *valid;
    struct evaluation e;
    config_source(&data, "");
    strcpy(data.valid, at("set"));
    assert_ok(images_open(&valid, &data, DATA_VALID, &setup));
    assert_ok(evaluate(&l->model, &l->dev, &l->pool, l->theta, valid, range, &e));
    assert_true(fabs(e.loss - want->loss) < 1e-9 && e.hits == want->hits);
    loader_close(valid);
}

#endif
