/* WiredTiger's methods are members of structures, and some take a variable number of arguments: here each method in use is a
 * plain function, so that no layout of WiredTiger's is repeated outside of its own header. Keys and values are bytes
 * (key_format=u, value_format=u) everywhere. */
#include <stddef.h>
#include <stdint.h>

#include <wiredtiger.h>

int peers_wt_open(const char *home, const char *config, WT_CONNECTION **connection) {
    return wiredtiger_open(home, NULL, config, connection);
}

int peers_wt_close(WT_CONNECTION *connection) { return connection->close(connection, NULL); }

int peers_wt_session(WT_CONNECTION *connection, const char *config, WT_SESSION **session) {
    return connection->open_session(connection, NULL, config, session);
}

int peers_wt_session_close(WT_SESSION *session) { return session->close(session, NULL); }

int peers_wt_create(WT_SESSION *session, const char *uri, const char *config) {
    return session->create(session, uri, config);
}

int peers_wt_checkpoint(WT_SESSION *session) { return session->checkpoint(session, NULL); }

int peers_wt_begin(WT_SESSION *session, const char *config) { return session->begin_transaction(session, config); }

int peers_wt_commit(WT_SESSION *session, const char *config) { return session->commit_transaction(session, config); }

int peers_wt_rollback(WT_SESSION *session) { return session->rollback_transaction(session, NULL); }

int peers_wt_cursor(WT_SESSION *session, const char *uri, const char *config, WT_CURSOR **cursor) {
    return session->open_cursor(session, uri, NULL, config, cursor);
}

static void set_key(WT_CURSOR *cursor, const void *key, size_t key_len) {
    WT_ITEM item = {0};
    item.data = key;
    item.size = key_len;
    cursor->set_key(cursor, &item);
}

int peers_wt_reset(WT_CURSOR *cursor) { return cursor->reset(cursor); }

int peers_wt_search(WT_CURSOR *cursor, const void *key, size_t key_len) {
    set_key(cursor, key, key_len);
    return cursor->search(cursor);
}

int peers_wt_search_near(WT_CURSOR *cursor, const void *key, size_t key_len, int *exact) {
    set_key(cursor, key, key_len);
    return cursor->search_near(cursor, exact);
}

int peers_wt_reserve(WT_CURSOR *cursor, const void *key, size_t key_len) {
    set_key(cursor, key, key_len);
    return cursor->reserve(cursor);
}

int peers_wt_next(WT_CURSOR *cursor) { return cursor->next(cursor); }

int peers_wt_prev(WT_CURSOR *cursor) { return cursor->prev(cursor); }

int peers_wt_key(WT_CURSOR *cursor, const void **data, size_t *len) {
    WT_ITEM item;
    int ret = cursor->get_key(cursor, &item);
    if (ret == 0) {
        *data = item.data;
        *len = item.size;
    }
    return ret;
}

int peers_wt_value(WT_CURSOR *cursor, const void **data, size_t *len) {
    WT_ITEM item;
    int ret = cursor->get_value(cursor, &item);
    if (ret == 0) {
        *data = item.data;
        *len = item.size;
    }
    return ret;
}

int peers_wt_put(WT_CURSOR *cursor, const void *key, size_t key_len, const void *value, size_t value_len) {
    WT_ITEM item = {0};
    set_key(cursor, key, key_len);
    item.data = value;
    item.size = value_len;
    cursor->set_value(cursor, &item);
    return cursor->insert(cursor);
}

int peers_wt_remove(WT_CURSOR *cursor, const void *key, size_t key_len) {
    set_key(cursor, key, key_len);
    return cursor->remove(cursor);
}

/* How often the log was flushed since the connection was opened. */
int peers_wt_log_flushes(WT_SESSION *session, int64_t *count) {
    WT_CURSOR *cursor;
    const char *description, *printable;
    int ret = session->open_cursor(session, "statistics:", NULL, "statistics=(fast)", &cursor);
    if (ret != 0)
        return ret;
    cursor->set_key(cursor, WT_STAT_CONN_LOG_SYNC);
    ret = cursor->search(cursor);
    if (ret == 0)
        ret = cursor->get_value(cursor, &description, &printable, count);
    cursor->close(cursor);
    return ret;
}

const char *peers_wt_error(int error) { return wiredtiger_strerror(error); }

int peers_wt_is_conflict(int error) { return error == WT_ROLLBACK; }

int peers_wt_is_not_found(int error) { return error == WT_NOTFOUND; }
