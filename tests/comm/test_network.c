/* Shared links: the network by itself, and its effects on workers in virtual time. */
#include "base/scratch.h"
#include "comm/suite.h"

#include <math.h>

#include "comm/formula.h"
#include "comm/links/network.h"
#include "comm/links/route.h"

enum { MB = 1 << 20 };

static double now(const struct worker *w)
{
    return clock_now(w->clock);
}

static int ended;
static double end_time[16];

/* Flows as numbered messages between workers. */
struct letter {
    struct network_flow flow;
    struct network_use use[2];
    int number;
};

static void letter_ended(struct network_flow *flow, double time)
{
    ended++;
    end_time[((struct letter *)flow)->number] = time;
}

static void post(struct network *net, struct letter *l, int number, int from, int to, double bytes,
                 double when)
{
    const struct network_hop hop = network_hop(net, from, to);
    *l = (struct letter){.flow.ended = letter_ended, .number = number};
    l->flow.use = l->use;
    for (int i = 0; i < 2; i++)
        if (hop.port[i] >= 0)
            l->use[l->flow.n++] = (struct network_use){.port = hop.port[i], .streams = 1};
    while (network_next(net) <= when)
        network_end_next(net);
    assert_ok(network_reserve(net));
    network_start(net, &l->flow, bytes, when);
}

static void finish(struct network *net)
{
    while (network_next(net) < INFINITY)
        network_end_next(net);
}

/* 0 -> 1 alone for a second, then together with 0 -> 2, and with 2 -> 3, which shares no port with
 * either: each of the first two gets half of worker 0's outgoing port, 2 -> 3 all of worker 2's.
 * The bytes left when one has ended get the full rate. */
static void shares(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {100, 0}};
    const int node[4] = {0};
    struct network *net;
    struct letter l[4];
    assert_ok(network_open(&net, &links, node, 4));
    post(net, &l[0], 0, 0, 1, 300, 0);
    post(net, &l[1], 1, 0, 2, 50, 1);
    post(net, &l[2], 2, 2, 3, 100, 1);
    finish(net);
    assert_true(near(end_time[0], 3.5)); /* 100 bytes by 1 s, 50 more by 2 s, 150 in the rest */
    assert_true(near(end_time[1], 2));
    assert_true(near(end_time[2], 2));
    /* Max-min: three streams into worker 3 get a third each; worker 0's other stream takes the
     * rest. */
    post(net, &l[0], 0, 0, 3, 100, 4);
    post(net, &l[1], 1, 1, 3, 100, 4);
    post(net, &l[2], 2, 2, 3, 100, 4);
    post(net, &l[3], 3, 0, 1, 200, 4);
    finish(net);
    assert_true(near(end_time[0], 7) && near(end_time[1], 7) && near(end_time[2], 7));
    assert_true(near(end_time[3], 7)); /* 200/3 bytes/s */
    network_close(net);
}

/* Streams that are fractions: after all flows through a port have a rate, the port's spare capacity
 * may be a rounding error, which no flow gets. */
static void parts_of_streams(void **state)
{
    (void)state;
    const struct link_model links = {.intra = {100, 0}};
    const int node[8] = {0};
    struct network *net;
    struct letter l[4];
    assert_ok(network_open(&net, &links, node, 8));
    for (int i = 0; i < 4;
         i++) { /* all leave worker 0; all but the last enter workers of their own */
        const struct network_hop hop = network_hop(net, 0, i < 3 ? i + 1 : 3);
        l[i] = (struct letter){.flow.ended = letter_ended, .flow.n = 2, .number = i};
        l[i].flow.use = l[i].use;
        for (int k = 0; k < 2; k++)
            l[i].use[k] = (struct network_use){.port = hop.port[k], .streams = 0.1 * (i + 1)};
        assert_ok(network_reserve(net));
        network_start(net, &l[i].flow, 100, 0);
    }
    finish(net);
    for (int i = 0; i < 4; i++) /* 100 bytes/s, one stream in all */
        assert_true(near(end_time[i], 1));
    network_close(net);
}

/* All streams of a flow held up by one port count at its other ports: 0 -> 1 enters worker 1 in 10
 * streams of 10 bytes/s and leaves worker 0 in 3 of them, so 70 bytes/s remain for 0 -> 2. */
static void wide_flows(void **state)
{
    (void)state;
    for (int streams = 1; streams <= 4; streams++) {
        const struct link_model links = {.intra = {100, 0}};
        const int node[4] = {0};
        struct network *net;
        struct letter l[2];
        assert_ok(network_open(&net, &links, node, 4));
        for (int i = 0; i < 2; i++) {
            const struct network_hop hop = network_hop(net, 0, i + 1);
            l[i] = (struct letter){.flow.ended = letter_ended, .flow.n = 2, .number = i};
            l[i].flow.use = l[i].use;
            l[i].use[0] = (struct network_use){.port = hop.port[0], .streams = i ? 1 : streams};
            l[i].use[1] = (struct network_use){.port = hop.port[1], .streams = i ? 1 : 10};
            assert_ok(network_reserve(net));
            network_start(net, &l[i].flow, i ? 100 - 10 * streams : 10, 0);
        }
        finish(net);
        assert_true(near(end_time[0], 1) && near(end_time[1], 1));
        network_close(net);
    }
}

/* Adapters: the two adapters of a node serve places in turn, those of a slow node are slow, and
 * messages inside a node use none. */
static void adapters(void **state)
{
    (void)state;
    const double speed[] = {1, 0.25};
    const int node[8] = {0, 0, 0, 0, 1, 1, 1, 1};
    const struct link_model links = {.intra = {0, 1}, .inter = {100, 2}, .adapters = 2};
    struct link_model slow = links;
    slow.speed = speed;
    struct network *net;
    struct letter l[4];
    assert_ok(network_open(&net, &links, node, 8));
    assert_int_equal(network_hop(net, 0, 1).port[0], -1);
    assert_true(network_hop(net, 0, 1).latency == 1 && network_hop(net, 0, 4).latency == 2);
    for (int i = 0; i < 3; i++) /* places 0 and 2 share an adapter */
        post(net, &l[i], i, i, 4 + i, 100, 0);
    finish(net);
    assert_true(near(end_time[0], 2) && near(end_time[1], 1) && near(end_time[2], 2));
    network_close(net);
    assert_ok(network_open(&net, &slow, node, 8));
    post(net, &l[0], 0, 0, 4, 100, 0);
    post(net, &l[1], 1, 4, 0, 100, 0);
    finish(net);
    assert_true(near(end_time[0], 4) && near(end_time[1], 4));
    network_close(net);
}

/* Two lanes at once: each all-reduce takes the time of both in sequence. */
struct two {
    struct comm *c[2];
    struct lane *lane[2];
    size_t count;
};

static enum sotto_status reduce_0(void *arg)
{
    struct two *t = arg;
    return comm_allreduce(t->c[0], view_none, view_none, t->count);
}

static enum sotto_status reduce_1(void *arg)
{
    struct two *t = arg;
    return comm_allreduce(t->c[1], view_none, view_none, t->count);
}

static enum sotto_status two_lanes_worker(struct worker *w, void *arg)
{
    const struct formula *f = arg;
    struct two t = {.count = MB};
    for (int i = 0; i < 2; i++) {
        TRY(w->ops->lane(w, &t.lane[i]));
        TRY(comm_duplicate(w->world, &t.c[i]));
    }
    TRY(lane_start(t.lane[0], reduce_0, &t));
    TRY(lane_start(t.lane[1], reduce_1, &t));
    for (int i = 0; i < 2; i++) {
        TRY(lane_wait(t.lane[i]));
        struct formula half = *f;
        half.intra.bandwidth /= 2;
        half.inter.bandwidth /= 2;
        const double want = formula_allreduce(&half, 4.0 * MB);
        CHECK(near(now(w), want), "lane %d is done at %.12g, not %.12g", i, now(w), want);
    }
    for (int i = 0; i < 2; i++) {
        lane_close(t.lane[i]);
        comm_free(t.c[i]);
    }
    return SOTTO_OK;
}

static void two_lanes(void **state)
{
    (void)state;
    static const int shapes[][2] = {{1, 4}, {4, 1}, {2, 3}};
    for (int i = 0; i < 3; i++) {
        struct formula f = {shapes[i][0], shapes[i][1], {8 * MB, 1e-3}, {MB, 1e-2}};
        const struct link_model links = {.intra = f.intra, .inter = f.inter};
        int node[8], workers = f.nodes * f.each;
        for (int r = 0; r < workers; r++)
            node[r] = r / f.each;
        struct engine_config config = {.workers = workers, .node = node, .links = &links};
        assert_ok(engine_virtual(&config, two_lanes_worker, &f));
    }
}

/* Seven ranks send 1 MB each to one rank, which receives 1 MB/s. */
static enum sotto_status incast_worker(struct worker *w, void *arg)
{
    (void)arg;
    const struct view v = view_of(NULL, DTYPE_F32);
    if (w->rank > 0) {
        TRY(comm_send(w->world, v, MB / 4, 0));
        CHECK(near(now(w), 7), "rank %d is done at %.12g", w->rank, now(w));
        return SOTTO_OK;
    }
    for (int r = 1; r < w->size; r++)
        TRY(comm_recv(w->world, v, MB / 4, r));
    CHECK(near(now(w), 7.5), "all have come at %.12g", now(w));
    return SOTTO_OK;
}

/* Four pairs across two nodes with one adapter each; then also the other direction, which uses the
 * other ports. */
static enum sotto_status pairs_worker(struct worker *w, void *arg)
{
    const double want = *(const double *)arg;
    const struct view v = view_of(NULL, DTYPE_F32);
    const int other = (w->rank + 4) % 8;
    if (w->rank < 4)
        TRY(comm_send(w->world, v, MB / 4, other));
    else
        TRY(comm_recv(w->world, v, MB / 4, other));
    CHECK(near(now(w), want + (w->rank < 4 ? 0 : 0.5)), "rank %d: %.12g", w->rank, now(w));
    TRY(comm_barrier(w->world));
    const double begin = now(w);
    size_t came;
    TRY(comm_exchange(w->world, v, MB / 4, other, v, MB / 4, other, &came));
    CHECK(near(now(w) - begin, want + 0.5), "exchange of %d: %.12g", w->rank, now(w) - begin);
    return SOTTO_OK;
}

static void many_at_once(void **state)
{
    (void)state;
    const int node[8] = {0, 0, 0, 0, 1, 1, 1, 1};
    struct link_model links = {.intra = {MB, 0.5}, .inter = {MB, 0.5}, .adapters = 1};
    struct engine_config config = {.workers = 8, .links = &links};
    assert_ok(engine_virtual(&config, incast_worker, NULL));
    config.node = node;
    assert_ok(engine_virtual(&config, pairs_worker, &(double){4}));
    links.adapters = 2;
    assert_ok(engine_virtual(&config, pairs_worker, &(double){2}));
    links.adapters = 0;
    assert_ok(engine_virtual(&config, pairs_worker, &(double){1}));
}

/* A ring made of exchanges takes the time of the collective, on equal links and on mixed links,
 * with uneven nodes of which one is slow. */
static enum sotto_status ring_worker(struct worker *w, void *arg)
{
    const size_t *count = arg;
    const struct view v = view_of(NULL, DTYPE_F32);
    const int next = (w->rank + 1) % w->size, previous = (w->rank + w->size - 1) % w->size;
    size_t came;
    TRY(comm_barrier(w->world));
    double begin = now(w);
    for (int i = 0; i < w->size - 1; i++)
        TRY(comm_exchange(w->world, v, *count, next, v, *count, previous, &came));
    TRY(comm_barrier(w->world)); /* time of the slowest rank */
    const double barrier = begin, made = now(w) - begin - barrier;
    begin = now(w);
    TRY(comm_allgather(w->world, v, v, *count * (size_t)w->size));
    CHECK(near(now(w) - begin, made), "the collective takes %.12g, the ring %.12g", now(w) - begin,
          made);
    return SOTTO_OK;
}

static void made_of_messages(void **state)
{
    (void)state;
    static const int uneven[] = {0, 0, 0, 1, 2, 2, 2, 2}, even[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const double speed[] = {1, 1, 0.3, 1, 1, 1, 1, 1};
    for (int i = 0; i < 12; i++) {
        struct link_model links = {.intra = {50 * MB, 1e-4}, .inter = {MB, i % 2 ? 1e-2 : 1}};
        links.adapters = 1;
        links.speed = i % 3 == 2 ? speed : NULL;
        struct engine_config config = {.workers = 8, .links = &links};
        config.node = i / 3 % 2 ? even : i / 6 ? uneven : NULL;
        assert_ok(engine_virtual(&config, ring_worker, &(size_t){MB / 4}));
    }
}

/* A ring on mixed links: the slow hop is always busy, and the length of the ring decides the rest.
 */
static void mixed_rings(void **state)
{
    (void)state;
    const int node[] = {0, 0, 0, 1}, worker[] = {0, 1, 2, 3};
    const struct link_model links = {.intra = {100, 0}, .inter = {1, 0.25}};
    struct network *net;
    struct route route;
    double seconds;
    assert_ok(network_open(&net, &links, node, 4));
    route_open(&route, net, worker, node, 4);
    assert_int_equal(route.layout.nodes, 1);
    /* 3 steps of 100 KB blocks over the slow hops 2 -> 3 and 3 -> 0: one slow hop passes three
     * blocks, and both latencies are added */
    const double block = 1e5, slow = block + 0.25;
    assert_ok(route_seconds(&route, (struct route_call){.call = COMM_ALLGATHER, .bytes = 4 * block},
                            &seconds));
    assert_true(near(seconds, slow + slow + block));
    assert_ok(route_seconds(&route, (struct route_call){.call = COMM_ALLGATHER, .bytes = 2 * block},
                            &seconds)); /* blocks of half the size: the time is new */
    assert_true(near(seconds, 3 * block / 2 + 2 * 0.25));
    /* straight to the summing ranks: three blocks cross to node 1, one after the other */
    assert_ok(route_seconds(
        &route, (struct route_call){.call = COMM_REDUCE_SCATTER, .bytes = 4 * block, .bf16 = true},
        &seconds));
    assert_true(near(seconds, 3 * block + 3 * 0.25));
    route_close(&route);
    network_close(net);
}

/* Blocks that go straight to the summing ranks may wait for a port that no hop of the ring uses: of
 * a slow node's workers the first and the last have an adapter each, and the two between share one.
 */
static void slowest_of_straight_ways(void **state)
{
    (void)state;
    const int node[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, worker[] = {1, 3, 6, 8, 9};
    const int node_of[] = {0, 0, 0, 0, 1};
    const double speed[] = {0.1, 1}, block = 1e5;
    const struct link_model links = {.inter = {1, 0.25}, .adapters = 3, .speed = speed};
    struct network *net;
    struct route route;
    double seconds;
    assert_ok(network_open(&net, &links, node, 10));
    route_open(&route, net, worker, node_of, 5);
    assert_ok(route_seconds(
        &route, (struct route_call){.call = COMM_REDUCE_SCATTER, .bytes = 5 * block, .bf16 = true},
        &seconds));
    assert_true(
        near(seconds, 2 * block / 0.1 + 4 * 0.25)); /* both send a block to the other node */
    route_close(&route);
    network_close(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares),
        cmocka_unit_test(parts_of_streams),
        cmocka_unit_test(adapters),
        cmocka_unit_test(two_lanes),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(made_of_messages),
        cmocka_unit_test(mixed_rings),
        cmocka_unit_test(wide_flows),
        cmocka_unit_test(slowest_of_straight_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
