/* Opens a store, writes in a transaction, scans by prefix, and closes.
 *
 *   cc store.c $(pkg-config --cflags --libs qpair) -o store && ./store FILE */
#include <qpair.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static qpair_table *users;

/* Ends the program with the message of a call that failed. */
static void must(int code, qpair_error *error)
{
    if (code == QPAIR_OK)
        return;
    fprintf(stderr, "%s: %s\n", qpair_code_name(code), qpair_error_message(error));
    qpair_error_free(error);
    exit(1);
}

/* Runs again if another transaction was in the way. */
static int write_users(void *context, qpair_transaction *transaction)
{
    int code;
    (void)context;
    code = qpair_transaction_put(transaction, users, "user/ada", 8, "1815", 4, NULL);
    if (code == QPAIR_OK)
        code = qpair_transaction_put(transaction, users, "user/alan", 9, "1912", 4, NULL);
    return code;
}

int main(int argc, char **argv)
{
    qpair_error *error = NULL;
    qpair_options *options;
    qpair_store *store;
    qpair_range *range;
    struct qpair_range_options bounds = {.size = sizeof bounds, .prefix = "user/", .prefix_len = 5};
    const void *key, *value;
    size_t key_len, value_len;
    char year[16];

    must(qpair_options_new(&options, &error), error);
    must(qpair_options_set(options, "memory", "16MiB", &error), error);
    /* For file systems without direct I/O. */
    must(qpair_options_set_bool(options, "buffered", true, &error), error);
    must(qpair_open(argc > 1 ? argv[1] : "ram:size=16MiB", options, &store, &error), error);
    must(qpair_options_free(options, &error), error);
    must(qpair_table_open(store, "users", &users, &error), error);

    must(qpair_transact(store, NULL, write_users, NULL, &error), error);
    must(qpair_range_of_table(users, &bounds, &range, &error), error);
    for (;;) {
        must(qpair_range_next(range, &key, &key_len, &value, &value_len, &error), error);
        if (key == NULL)
            break;
        printf("%.*s %.*s\n", (int)key_len, (const char *)key, (int)value_len, (const char *)value);
    }
    must(qpair_range_close(range, &error), error);

    must(qpair_get(users, "user/ada", 8, year, sizeof year, &value_len, &error), error);
    if (value_len == QPAIR_NO_RECORD || value_len > sizeof year || memcmp(year, "1815", 4) != 0)
        return 1;
    must(qpair_table_close(users, &error), error);
    must(qpair_close(store, &error), error);
    return 0;
}
