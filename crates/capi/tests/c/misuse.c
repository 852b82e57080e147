/* Wrong calls: each is an error with a code, and nothing else happens. Run by crates/capi/test. */
#include <pthread.h>
#include <qpair.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int line_of_test;

static void expect(int code, int expected, qpair_error *error, int line)
{
    const char *message = qpair_error_message(error);
    if (code != expected || qpair_error_code(error) != expected) {
        fprintf(stderr, "line %d: %s instead of %s: %s\n", line, qpair_code_name(code), qpair_code_name(expected),
                message ? message : "");
        exit(1);
    }
    if (expected != QPAIR_OK && (message == NULL || strlen(message) < 10)) {
        fprintf(stderr, "line %d: no message\n", line);
        exit(1);
    }
    qpair_error_free(error);
    line_of_test = line;
}

/* Runs a call whose last argument is &error. */
#define EXPECT(expected, call)                             \
    do {                                                   \
        qpair_error *error = NULL;                         \
        int code_ = (call);                                \
        expect(code_, (expected), error, __LINE__);        \
    } while (0)

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "line %d: not %s\n", __LINE__, #condition);       \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

static qpair_store *store;
static qpair_table *table;

static qpair_store *open_ram(void)
{
    qpair_options *options;
    qpair_store *opened;
    EXPECT(QPAIR_OK, qpair_options_new(&options, &error));
    EXPECT(QPAIR_OK, qpair_options_set(options, "memory", "4MiB", &error));
    EXPECT(QPAIR_OK, qpair_options_set_number(options, "workers", 1, &error));
    EXPECT(QPAIR_OK, qpair_open("ram:size=16MiB", options, &opened, &error));
    EXPECT(QPAIR_OK, qpair_options_free(options, &error));
    return opened;
}

static void nulls(void)
{
    char buffer[8];
    size_t len = 77;
    qpair_value *value;
    EXPECT(QPAIR_MISUSE, qpair_open(NULL, NULL, &store, &error));
    EXPECT(QPAIR_MISUSE, qpair_open("ram:size=16MiB", NULL, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_get(NULL, "k", 1, buffer, sizeof buffer, &len, &error));
    CHECK(len == 77);
    EXPECT(QPAIR_MISUSE, qpair_get(table, NULL, 1, buffer, sizeof buffer, &len, &error));
    EXPECT(QPAIR_MISUSE, qpair_get(table, "k", 1, NULL, sizeof buffer, &len, &error));
    EXPECT(QPAIR_MISUSE, qpair_get(table, "k", 1, buffer, sizeof buffer, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_get_lent(table, "k", 1, NULL, NULL, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_put(table, "k", (size_t)-1, "v", 1, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_transact(store, NULL, NULL, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_load(table, NULL, NULL, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_statistics(store, 9, &value, &error));
    EXPECT(QPAIR_OK, qpair_table_close(NULL, &error));
    EXPECT(QPAIR_OK, qpair_rollback(NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_close(NULL, &error));
    /* Without a place for the error there is the code alone. */
    CHECK(qpair_put(NULL, "k", 1, "v", 1, NULL, NULL) == QPAIR_MISUSE);
    CHECK(qpair_error_code(NULL) == QPAIR_OK && qpair_error_message(NULL) == NULL);
    qpair_error_free(NULL);
}

static void kinds_and_sizes(void)
{
    struct qpair_range_options bounds = {0};
    qpair_range *range;
    qpair_error *error = NULL;
    /* A handle of another kind, and an address that is no handle. */
    EXPECT(QPAIR_MISUSE, qpair_put((qpair_table *)(void *)store, "k", 1, "v", 1, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_put((qpair_table *)(void *)&bounds, "k", 1, "v", 1, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_range_of_table(table, &bounds, &range, &error));
    bounds.size = sizeof bounds;
    bounds.flags = 64;
    EXPECT(QPAIR_INVALID, qpair_range_of_table(table, &bounds, &range, &error));
    bounds.flags = 0;
    bounds.prefix = bounds.from = "a";
    bounds.prefix_len = bounds.from_len = 1;
    EXPECT(QPAIR_INVALID, qpair_range_of_table(table, &bounds, &range, &error));
    bounds.prefix = NULL;
    bounds.prefix_len = 0;
    bounds.from = "b";
    bounds.to = "a";
    bounds.to_len = 1;
    EXPECT(QPAIR_INVALID, qpair_range_of_table(table, &bounds, &range, &error));
    CHECK(qpair_put(NULL, "k", 1, "v", 1, NULL, &error) == QPAIR_MISUSE);
    qpair_error_free(error);
    qpair_error_free(error);
    CHECK(qpair_error_code(error) == QPAIR_MISUSE && qpair_error_message(error) == NULL);
}

static void options(void)
{
    const struct qpair_option *list;
    const char *at;
    qpair_options *options;
    size_t count, i;
    EXPECT(QPAIR_OK, qpair_options_list(&list, &count, &error));
    CHECK(count >= 26 && list->size == sizeof *list);
    for (at = (const char *)list, i = 0; i < count; i++, at += list->size) {
        const struct qpair_option *option = (const struct qpair_option *)at;
        CHECK(strlen(option->name) > 0 && strlen(option->help) > 10 && strlen(option->default_value) > 0);
    }
    EXPECT(QPAIR_OK, qpair_options_new(&options, &error));
    EXPECT(QPAIR_INVALID, qpair_options_set(options, "memroy", "4MiB", &error));
    EXPECT(QPAIR_INVALID, qpair_options_set(options, "memory", "much", &error));
    EXPECT(QPAIR_INVALID, qpair_options_set(options, "create", "maybe", &error));
    EXPECT(QPAIR_INVALID, qpair_options_set_bool(options, "workers", true, &error));
    EXPECT(QPAIR_INVALID, qpair_options_set_number(options, "depth", (uint64_t)1 << 40, &error));
    EXPECT(QPAIR_INVALID, qpair_options_set(options, "memory", "\xff\xfe", &error));
    EXPECT(QPAIR_OK, qpair_options_free(options, &error));
    EXPECT(QPAIR_MISUSE, qpair_options_set_bool(options, "create", true, &error));
    EXPECT(QPAIR_MISUSE, qpair_options_free(options, &error));
    EXPECT(QPAIR_NOT_FOUND, qpair_open("/nowhere/at/all", NULL, &(qpair_store *){NULL}, &error));
}

static int ends_it_itself(void *context, qpair_transaction *transaction)
{
    int *runs = context;
    ++*runs;
    EXPECT(QPAIR_MISUSE, qpair_commit(transaction, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_rollback(transaction, &error));
    /* The store is in a call. */
    EXPECT(QPAIR_BUSY, qpair_close(store, &error));
    EXPECT(QPAIR_OK, qpair_transaction_put(transaction, table, "own", 3, "1", 1, &error));
    return -7;
}

static int conflicts(void *context, qpair_transaction *transaction)
{
    int *runs = context;
    ++*runs;
    CHECK(qpair_transaction_put(transaction, table, "retried", 7, "1", 1, NULL) == QPAIR_OK);
    return *runs < 3 ? QPAIR_CONFLICT : QPAIR_OK;
}

static void transactions(void)
{
    qpair_transaction *transaction;
    qpair_range *range;
    const void *key, *value;
    size_t key_len, value_len;
    char buffer[4];
    int runs = 0;
    struct qpair_transaction_options wrong = {.size = sizeof wrong, .isolation = 9};
    EXPECT(QPAIR_INVALID, qpair_begin(store, &wrong, &transaction, &error));

    EXPECT(QPAIR_OK, qpair_begin(store, NULL, &transaction, &error));
    EXPECT(QPAIR_OK, qpair_transaction_put(transaction, table, "t", 1, "value", 5, &error));
    EXPECT(QPAIR_OK, qpair_transaction_get(transaction, table, "t", 1, buffer, sizeof buffer, &value_len, &error));
    CHECK(value_len == 5 && memcmp(buffer, "valu", 4) == 0);
    EXPECT(QPAIR_OK, qpair_range_of_transaction(transaction, table, NULL, &range, &error));
    EXPECT(QPAIR_OK, qpair_commit(transaction, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_commit(transaction, NULL, &error));
    EXPECT(QPAIR_MISUSE, qpair_transaction_put(transaction, table, "t", 1, "v", 1, &error));
    EXPECT(QPAIR_MISUSE, qpair_range_next(range, &key, &key_len, &value, &value_len, &error));
    EXPECT(QPAIR_OK, qpair_range_close(range, &error));
    EXPECT(QPAIR_MISUSE, qpair_range_next(range, &key, &key_len, &value, &value_len, &error));

    /* A code of the caller's own comes back without an error. */
    CHECK(qpair_transact(store, NULL, ends_it_itself, &runs, NULL) == -7 && runs == 1);
    EXPECT(QPAIR_OK, qpair_get(table, "own", 3, NULL, 0, &value_len, &error));
    CHECK(value_len == QPAIR_NO_RECORD);
    runs = 0;
    EXPECT(QPAIR_OK, qpair_transact(store, NULL, conflicts, &runs, &error));
    CHECK(runs == 3);
    EXPECT(QPAIR_OK, qpair_get(table, "retried", 7, NULL, 0, &value_len, &error));
    CHECK(value_len == 1);
}

/* One transaction in two threads at once: at most one of them is in a call. */
static qpair_transaction *shared;
static int refused;

static void *puts_much(void *context)
{
    int i;
    (void)context;
    for (i = 0; i < 20000; i++) {
        int code = qpair_transaction_put(shared, table, &i, sizeof i, "v", 1, NULL);
        if (code == QPAIR_BUSY)
            __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
        else
            CHECK(code == QPAIR_OK);
    }
    return NULL;
}

static int waits(void *context, uint64_t done, uint64_t all)
{
    (void)context, (void)done, (void)all;
    /* A thread that is in a call with the store keeps it open. */
    EXPECT(QPAIR_BUSY, qpair_close(store, &error));
    return 1;
}

static void threads(void)
{
    pthread_t others[2];
    int i;
    EXPECT(QPAIR_OK, qpair_begin(store, NULL, &shared, &error));
    for (i = 0; i < 2; i++)
        CHECK(pthread_create(&others[i], NULL, puts_much, NULL) == 0);
    for (i = 0; i < 2; i++)
        pthread_join(others[i], NULL);
    printf("%d calls refused\n", refused);
    EXPECT(QPAIR_OK, qpair_rollback(shared, &error));
    EXPECT(QPAIR_INTERRUPTED, qpair_backup(store, "ram:size=16MiB", false, waits, NULL, &error));
}

static void forks(void)
{
    qpair_queue *queue;
    qpair_store *own;
    qpair_table *of;
    size_t len, handles = qpair_open_handles();
    int status;
    pid_t child;
    EXPECT(QPAIR_OK, qpair_queue_new(&queue, &error));
    fflush(NULL);
    child = fork();
    if (child == 0) {
        struct qpair_completion done = {.size = sizeof done};
        EXPECT(QPAIR_FORKED, qpair_get(table, "t", 1, NULL, 0, &len, &error));
        EXPECT(QPAIR_FORKED, qpair_put(table, "t", 1, "child", 5, NULL, &error));
        EXPECT(QPAIR_FORKED, qpair_queue_wait(queue, &done, 1, 1, -1, &len, &error));
        EXPECT(QPAIR_FORKED, qpair_table_close(table, &error));
        EXPECT(QPAIR_FORKED, qpair_queue_close(queue, &error));
        EXPECT(QPAIR_FORKED, qpair_close(store, &error));
        /* What the child opens itself is its own. */
        own = open_ram();
        EXPECT(QPAIR_OK, qpair_table_open(own, "t", &of, &error));
        EXPECT(QPAIR_OK, qpair_put(of, "t", 1, "child", 5, NULL, &error));
        EXPECT(QPAIR_OK, qpair_get(of, "t", 1, NULL, 0, &len, &error));
        CHECK(len == 5);
        EXPECT(QPAIR_OK, qpair_table_close(of, &error));
        EXPECT(QPAIR_OK, qpair_close(own, &error));
        /* Another program, whose memory nobody looks at for what the parent's threads have. */
        execl("/bin/sh", "sh", "-c", "exit 0", (char *)NULL);
        _exit(1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(QPAIR_OK, qpair_get(table, "t", 1, NULL, 0, &len, &error));
    CHECK(len == 5);
    EXPECT(QPAIR_OK, qpair_queue_close(queue, &error));
    CHECK(qpair_open_handles() == handles);
}

static int descends(void *context, qpair_record *record)
{
    static const char keys[] = "cba";
    int *at = context;
    CHECK(record->size == sizeof *record);
    record->key = keys + *at;
    record->key_len = 1;
    return ++*at <= 3;
}

static int fails(void *context, qpair_record *record)
{
    (void)context, (void)record;
    return -1;
}

static void loads_and_devices(void)
{
    qpair_table *empty;
    qpair_device *device;
    qpair_queue *queue;
    struct qpair_device_options options = {.size = sizeof options, .depth = 2};
    struct qpair_completion done[2];
    char block[4096] = {1};
    size_t taken;
    int at = 0;
    EXPECT(QPAIR_OK, qpair_table_open(store, "loaded", &empty, &error));
    EXPECT(QPAIR_INVALID, qpair_load(empty, descends, &at, NULL, &error));
    EXPECT(QPAIR_INTERRUPTED, qpair_load(empty, fails, NULL, NULL, &error));
    EXPECT(QPAIR_OK, qpair_table_close(empty, &error));

    EXPECT(QPAIR_NOT_FOUND, qpair_device_open("/nowhere/at/all", NULL, &device, &error));
    options.transfer_bytes_max = 1000;
    EXPECT(QPAIR_NO_MEMORY, qpair_device_open("ram:size=1MiB", &options, &device, &error));
    options.transfer_bytes_max = 4096;
    EXPECT(QPAIR_OK, qpair_device_open("ram:size=1MiB", &options, &device, &error));
    EXPECT(QPAIR_MISUSE, qpair_device_write(device, NULL, 0, block, sizeof block, 0, 0, &error));
    EXPECT(QPAIR_OK, qpair_queue_new(&queue, &error));
    EXPECT(QPAIR_INVALID, qpair_device_write(device, queue, 0, block, 8192, 0, 0, &error));
    EXPECT(QPAIR_MISUSE, qpair_device_read(device, queue, 0, NULL, 4096, 0, &error));
    /* Behind the end of the device, and not on its grid. */
    EXPECT(QPAIR_OK, qpair_device_write(device, queue, 1 << 20, block, sizeof block, 0, 5, &error));
    EXPECT(QPAIR_OK, qpair_device_read(device, queue, 1, block, 512, 6, &error));
    done[0].size = 8;
    EXPECT(QPAIR_MISUSE, qpair_queue_take(queue, done, 2, &taken, &error));
    done[0].size = sizeof done[0];
    EXPECT(QPAIR_OK, qpair_queue_wait(queue, done, 2, 2, -1, &taken, &error));
    CHECK(taken == 2);
    while (taken-- > 0) {
        CHECK(done[taken].user_data == 5 || done[taken].user_data == 6);
        expect(done[taken].code, QPAIR_INVALID, done[taken].error, __LINE__);
    }
    /* A queue that is closed first: the buffer is no longer written. */
    EXPECT(QPAIR_OK, qpair_device_read(device, queue, 0, block, 4096, 0, &error));
    EXPECT(QPAIR_OK, qpair_queue_close(queue, &error));
    EXPECT(QPAIR_OK, qpair_device_close(device, &error));
    CHECK(block[0] == 1);
    EXPECT(QPAIR_MISUSE, qpair_device_close(device, &error));
}

static void closed(void)
{
    qpair_snapshot *snapshot;
    qpair_value *value;
    const void *data;
    size_t len;
    EXPECT(QPAIR_OK, qpair_put(table, "lent", 4, "value", 5, NULL, &error));
    EXPECT(QPAIR_OK, qpair_get_lent(table, "lent", 4, &value, &data, &len, &error));
    EXPECT(QPAIR_OK, qpair_snapshot_take(store, &snapshot, &error));
    EXPECT(QPAIR_OK, qpair_close(store, &error));
    EXPECT(QPAIR_MISUSE, qpair_close(store, &error));
    EXPECT(QPAIR_CLOSED, qpair_put(table, "k", 1, "v", 1, NULL, &error));
    EXPECT(QPAIR_CLOSED, qpair_get(table, "k", 1, NULL, 0, &len, &error));
    /* What was lent stays until it is released. */
    CHECK(memcmp(data, "value", 5) == 0 && qpair_value_data(value) == data && qpair_value_len(value) == 5);
    EXPECT(QPAIR_OK, qpair_value_release(value, &error));
    EXPECT(QPAIR_MISUSE, qpair_value_release(value, &error));
    CHECK(qpair_value_data(value) == NULL);
    EXPECT(QPAIR_OK, qpair_snapshot_release(snapshot, &error));
    EXPECT(QPAIR_OK, qpair_table_close(table, &error));
    EXPECT(QPAIR_MISUSE, qpair_table_close(table, &error));
    CHECK(qpair_open_handles() == 0);
}

int main(void)
{
    CHECK(qpair_abi_version() >= QPAIR_ABI_VERSION && strlen(qpair_version()) > 0);
    store = open_ram();
    EXPECT(QPAIR_OK, qpair_table_open(store, "t", &table, &error));
    EXPECT(QPAIR_NOT_FOUND, qpair_table_open_existing(store, "none", &(qpair_table *){NULL}, &error));
    nulls();
    kinds_and_sizes();
    options();
    transactions();
    threads();
    forks();
    loads_and_devices();
    closed();
    return 0;
}
