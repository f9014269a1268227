/* The backend of docs/internals/adding-a-backend.md: the suite of all backends, and a failing$
 * rank. */
#include "base/scratch.h"
#include "comm/any.h"
#include "comm/mail.h"

static void suite(void **state)
{
    (void)state;
    for (int size = 1; size <= 8; size++) {
        struct engine_config config = {.workers = size};
        struct suite_config how = {.most = SANITIZED ? 1023 : 20000, .ordered = true};
        assert_ok(engine_mail(&config, suite_run, &how));
        assert_ok(engine_mail(&config, any_run, NULL));
    }
}

static void on_nodes(void **state)
{
    (void)state;
    for (int i = 0; i < SUITE_NODES; i++) {
        struct suite_nodes n = suite_nodes[i];
        struct engine_config config = {.workers = n.workers, .node = n.node};
        assert_ok(engine_mail(&config, suite_on_nodes, &n));
    }
}

static enum sotto_status fail_one(struct worker *w, void *arg)
{
    float x = 1;
    (void)arg;
    if (w->rank == 2)
        return fail(SOTTO_ENUMERIC, "the loss is no number");
    for (;;)
        TRY(comm_allreduce(w->world, view_of(&x, DTYPE_F32), view_of(&x, DTYPE_F32), 1));
}

static void failing_rank(void **state)
{
    (void)state;
    assert_fails(engine_mail(&(struct engine_config){.workers = 4}, fail_one, NULL), SOTTO_ENUMERIC,
                 "the loss is no number");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suite),
        cmocka_unit_test(on_nodes),
        cmocka_unit_test(failing_rank),
    };
    return run_cases(tests, 1, NULL, NULL);
}
