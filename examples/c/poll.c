/* Asynchronous puts, gets and a commit, with one descriptor in a loop of poll(2).
 *
 *   cc poll.c $(pkg-config --cflags --libs qpair) -o poll && ./poll FILE */
#include <poll.h>
#include <qpair.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 1000, COMMIT = KEYS };

static void must(int code, qpair_error *error)
{
    if (code == QPAIR_OK)
        return;
    fprintf(stderr, "%s: %s\n", qpair_code_name(code), qpair_error_message(error));
    qpair_error_free(error);
    exit(1);
}

static void check(struct qpair_completion *done, int expected_value)
{
    must(done->code, done->error);
    if (done->operation != QPAIR_OPERATION_GET)
        return;
    if (done->data_len != sizeof done->user_data || memcmp(done->data, &done->user_data, 8) != 0 || !expected_value)
        exit(2);
    must(qpair_value_release(done->value, NULL), NULL);
}

/* Waits until `left` calls have ended. */
static void run(qpair_queue *queue, int left)
{
    qpair_error *error = NULL;
    struct qpair_completion done[64];
    struct pollfd event = {.events = POLLIN};
    size_t taken, at;

    must(qpair_queue_descriptor(queue, &event.fd, &error), error);
    done[0].size = sizeof done[0];
    while (left > 0) {
        /* Without notifications no call of the library makes a system call for the descriptor. */
        must(qpair_queue_set_notifications(queue, false, &error), error);
        do {
            must(qpair_queue_take(queue, done, 64, &taken, &error), error);
            for (at = 0; at < taken; at++)
                check(&done[at], 1);
            left -= (int)taken;
        } while (taken > 0);
        /* Switched on, it tells of what came meanwhile, so that this sleep misses nothing. */
        must(qpair_queue_set_notifications(queue, true, &error), error);
        if (left > 0 && poll(&event, 1, -1) < 0)
            exit(3);
    }
}

int main(int argc, char **argv)
{
    qpair_error *error = NULL;
    qpair_options *options;
    qpair_store *store;
    qpair_table *table;
    qpair_queue *queue;
    qpair_transaction *transaction;
    struct qpair_completion now = {.size = sizeof now};
    uint64_t key;
    int under_way = 0;

    must(qpair_options_new(&options, &error), error);
    must(qpair_options_set_number(options, "memory", 16 << 20, &error), error);
    must(qpair_options_set_bool(options, "buffered", true, &error), error);
    must(qpair_open(argc > 1 ? argv[1] : "ram:size=16MiB", options, &store, &error), error);
    must(qpair_options_free(options, &error), error);
    must(qpair_table_open(store, "numbers", &table, &error), error);
    must(qpair_queue_new(&queue, &error), error);

    for (key = 0; key < KEYS; key++)
        must(qpair_put_async(queue, table, &key, sizeof key, &key, sizeof key, key, &error), error);
    run(queue, KEYS);

    for (key = 0; key < KEYS; key++) {
        must(qpair_get_async(queue, table, &key, sizeof key, key, &now, &error), error);
        /* A value in memory is there at once. */
        if (now.operation == QPAIR_OPERATION_NONE)
            under_way++;
        else
            check(&now, 1);
    }
    run(queue, under_way);

    must(qpair_begin(store, NULL, &transaction, &error), error);
    key = COMMIT;
    must(qpair_transaction_put(transaction, table, &key, sizeof key, &key, sizeof key, &error), error);
    must(qpair_commit_async(queue, transaction, COMMIT, &error), error);
    run(queue, 1);
    printf("%d puts, %d gets of which %d had to wait, 1 commit\n", KEYS, KEYS, under_way);

    must(qpair_queue_close(queue, &error), error);
    must(qpair_table_close(table, &error), error);
    must(qpair_close(store, &error), error);
    return 0;
}
