/*
 * qpair for C++17: owners of the handles of qpair.h, with exceptions. Header only.
 *
 * Each class owns one handle: it can be moved and not copied, and its destructor closes the handle.
 * A call that fails throws qpair::error. handle() gives it, for functions of qpair.h that have
 * no member here. Keys and values are std::string_view, with any bytes.
 */
#ifndef QPAIR_HPP
#define QPAIR_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "qpair.h"

namespace qpair {

/* An error of the library: a code of qpair.h, and a message with advice. */
class error : public std::runtime_error {
public:
    error(int code, const std::string &message, std::string hint = {})
        : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}

    /* Takes over an error of a call, or of a completion. */
    static error of(int code, qpair_error *error) {
        const char *message = qpair_error_message(error), *hint = qpair_error_hint(error);
        qpair::error made(code, message ? message : qpair_code_name(code), hint ? hint : "");
        qpair_error_free(error);
        return made;
    }

    int code() const noexcept { return code_; }
    const std::string &hint() const noexcept { return hint_; }

private:
    int code_;
    std::string hint_;
};

namespace detail {

template <class Call> void call(Call &&run) {
    qpair_error *failed = nullptr;
    if (int code = run(&failed))
        throw error::of(code, failed);
}

/* The owner of a handle. */
template <class Handle, int (*Close)(Handle *, qpair_error **)> class owner {
public:
    owner() noexcept = default;
    explicit owner(Handle *handle) noexcept : handle_(handle) {}
    owner(owner &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    owner &operator=(owner &&other) noexcept {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    ~owner() { reset(); }

    Handle *handle() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    Handle *release() noexcept { return std::exchange(handle_, nullptr); }

    /* Closes the handle, and says nothing of an error. */
    void reset() noexcept {
        if (handle_)
            Close(std::exchange(handle_, nullptr), nullptr);
    }

protected:
    Handle *handle_ = nullptr;
};

} // namespace detail

/* A value or text that the library lends. */
class value : public detail::owner<qpair_value, qpair_value_release> {
public:
    using owner::owner;
    value(qpair_value *handle, const void *data, std::size_t len) noexcept
        : owner(handle), data_(static_cast<const char *>(data)), len_(len) {}

    std::string_view view() const noexcept { return {data_, len_}; }
    operator std::string_view() const noexcept { return view(); }
    std::string str() const { return std::string(view()); }

private:
    const char *data_ = "";
    std::size_t len_ = 0;
};

namespace detail {

/* Turns a call of the kind qpair_get_lent into a value. */
template <class Call> std::optional<value> lent(Call &&run) {
    qpair_value *handle = nullptr;
    const void *data = nullptr;
    std::size_t len = 0;
    call([&](qpair_error **e) { return run(&handle, &data, &len, e); });
    if (len == QPAIR_NO_RECORD)
        return std::nullopt;
    return value(handle, data, len);
}

template <class Call> std::string text(Call &&run) {
    qpair_value *handle = nullptr;
    call([&](qpair_error **e) { return run(&handle, e); });
    value owned(handle);
    return qpair_value_text(handle);
}

} // namespace detail

/* The options of a store: options().set("memory", "64MiB"). */
class options : public detail::owner<qpair_options, qpair_options_free> {
public:
    options() {
        detail::call([&](qpair_error **e) { return qpair_options_new(&handle_, e); });
    }
    options &set(const char *name, const char *text) {
        detail::call([&](qpair_error **e) { return qpair_options_set(handle_, name, text, e); });
        return *this;
    }
    options &set(const char *name, const std::string &text) { return set(name, text.c_str()); }
    template <class Number, std::enable_if_t<std::is_integral_v<Number>, int> = 0>
    options &set(const char *name, Number number) {
        detail::call([&](qpair_error **e) {
            if constexpr (std::is_same_v<Number, bool>)
                return qpair_options_set_bool(handle_, name, number, e);
            else
                return qpair_options_set_number(handle_, name, static_cast<std::uint64_t>(number), e);
        });
        return *this;
    }
};

/* The bounds of a range. The texts must be there until the range is begun. */
class bounds {
public:
    static bounds all() { return {}; }
    static bounds prefix(std::string_view prefix) {
        bounds made;
        made.raw_.prefix = prefix.empty() ? "" : prefix.data();
        made.raw_.prefix_len = prefix.size();
        return made;
    }
    static bounds from(std::string_view key) {
        bounds made;
        made.raw_.from = key.empty() ? "" : key.data();
        made.raw_.from_len = key.size();
        return made;
    }
    bounds &to(std::string_view key) {
        raw_.to = key.empty() ? "" : key.data();
        raw_.to_len = key.size();
        return *this;
    }
    bounds &with_to(bool with = true) { return flag(QPAIR_RANGE_WITH_TO, with); }
    bounds &after_from(bool after = true) { return flag(QPAIR_RANGE_AFTER_FROM, after); }
    bounds &reverse(bool reverse = true) { return flag(QPAIR_RANGE_REVERSE, reverse); }
    bounds &limit(std::uint64_t records) {
        raw_.limit = records;
        return *this;
    }
    const qpair_range_options *handle() const noexcept { return &raw_; }

private:
    bounds() { raw_.size = sizeof raw_; }
    bounds &flag(std::uint32_t flag, bool on) {
        raw_.flags = on ? raw_.flags | flag : raw_.flags & ~std::uint64_t{flag};
        return *this;
    }
    qpair_range_options raw_{};
};

/* The records of a range: for (auto [key, value] : range). The views hold until the next record. */
class range : public detail::owner<qpair_range, qpair_range_close> {
public:
    using owner::owner;
    using record = std::pair<std::string_view, std::string_view>;

    std::optional<record> next() {
        const void *key = nullptr, *value = nullptr;
        std::size_t key_len = 0, value_len = 0;
        detail::call([&](qpair_error **e) {
            return qpair_range_next(handle_, &key, &key_len, &value, &value_len, e);
        });
        if (!key)
            return std::nullopt;
        return record{{static_cast<const char *>(key), key_len}, {static_cast<const char *>(value), value_len}};
    }

    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = record;
        using difference_type = std::ptrdiff_t;
        using pointer = const record *;
        using reference = const record &;

        iterator() = default;
        explicit iterator(range *of) : of_(of) { ++*this; }
        reference operator*() const { return *now_; }
        pointer operator->() const { return &*now_; }
        iterator &operator++() {
            now_ = of_->next();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator &a, const iterator &b) { return a.now_.has_value() == b.now_.has_value(); }
        friend bool operator!=(const iterator &a, const iterator &b) { return !(a == b); }

    private:
        range *of_ = nullptr;
        std::optional<record> now_;
    };
    iterator begin() { return iterator(this); }
    iterator end() { return {}; }
};

class table : public detail::owner<qpair_table, qpair_table_close> {
public:
    using owner::owner;

    /* The value, lent: no copy but the library's own. */
    std::optional<value> get_lent(std::string_view key) const {
        return detail::lent([&](auto v, auto d, auto n, auto e) {
            return qpair_get_lent(handle_, key.data(), key.size(), v, d, n, e);
        });
    }
    /* The value, copied into a buffer that is used again; false without a record. */
    bool get(std::string_view key, std::string &into) const {
        std::size_t len = 0;
        into.resize(into.capacity());
        for (;;) {
            detail::call([&](qpair_error **e) {
                return qpair_get(handle_, key.data(), key.size(), into.data(), into.size(), &len, e);
            });
            if (len == QPAIR_NO_RECORD) {
                into.clear();
                return false;
            }
            bool fits = len <= into.size();
            into.resize(len);
            if (fits)
                return true;
        }
    }
    std::optional<std::string> get(std::string_view key) const {
        std::string found;
        return get(key, found) ? std::optional(std::move(found)) : std::nullopt;
    }
    bool put(std::string_view key, std::string_view value) {
        return flag([&](bool *replaced, qpair_error **e) {
            return qpair_put(handle_, key.data(), key.size(), value.data(), value.size(), replaced, e);
        });
    }
    bool insert(std::string_view key, std::string_view value) {
        return flag([&](bool *inserted, qpair_error **e) {
            return qpair_insert(handle_, key.data(), key.size(), value.data(), value.size(), inserted, e);
        });
    }
    bool erase(std::string_view key) {
        return flag([&](bool *deleted, qpair_error **e) {
            return qpair_delete(handle_, key.data(), key.size(), deleted, e);
        });
    }
    bool compare_and_swap(std::string_view key, std::optional<std::string_view> expected,
                          std::optional<std::string_view> value) {
        return flag([&](bool *swapped, qpair_error **e) {
            return qpair_compare_and_swap(handle_, key.data(), key.size(), at(expected), length(expected), at(value),
                                          length(value), swapped, e);
        });
    }
    qpair::range scan(const bounds &bounds = bounds::all()) const {
        qpair_range *made = nullptr;
        detail::call([&](qpair_error **e) { return qpair_range_of_table(handle_, bounds.handle(), &made, e); });
        return qpair::range(made);
    }
    std::uint64_t erase(const bounds &bounds) {
        std::uint64_t deleted = 0;
        detail::call([&](qpair_error **e) { return qpair_delete_range(handle_, bounds.handle(), &deleted, e); });
        return deleted;
    }
    /* Loads an empty table from iterators over pairs of texts, in the order of the keys. */
    template <class Iterator> std::uint64_t load(Iterator first, Iterator last) {
        struct source {
            Iterator next, last;
            std::pair<std::string, std::string> now;
            std::exception_ptr thrown;
        } from{first, last, {}, nullptr};
        auto next = [](void *context, qpair_record *record) -> int {
            auto &from = *static_cast<source *>(context);
            try {
                if (from.next == from.last)
                    return 0;
                from.now = {std::string(from.next->first), std::string(from.next->second)};
                ++from.next;
            } catch (...) {
                from.thrown = std::current_exception();
                return -1;
            }
            record->key = from.now.first.data();
            record->key_len = from.now.first.size();
            record->value = from.now.second.data();
            record->value_len = from.now.second.size();
            return 1;
        };
        std::uint64_t records = 0;
        qpair_error *failed = nullptr;
        int code = qpair_load(handle_, next, &from, &records, &failed);
        if (from.thrown) {
            qpair_error_free(failed);
            std::rethrow_exception(from.thrown);
        }
        if (code)
            throw error::of(code, failed);
        return records;
    }

    /* A pointer to no record, which is not that of an empty value. */
    static const char *at(const std::optional<std::string_view> &value) {
        return !value ? nullptr : value->empty() ? "" : value->data();
    }
    static std::size_t length(const std::optional<std::string_view> &value) { return value ? value->size() : 0; }

private:
    template <class Call> static bool flag(Call &&run) {
        bool flag = false;
        detail::call([&](qpair_error **e) { return run(&flag, e); });
        return flag;
    }
};

class transaction : public detail::owner<qpair_transaction, qpair_rollback> {
public:
    using owner::owner;

    std::optional<value> get(const table &of, std::string_view key, bool for_update = false) {
        return detail::lent([&](auto v, auto d, auto n, auto e) {
            return qpair_transaction_get_lent(handle_, of.handle(), key.data(), key.size(), for_update, v, d, n, e);
        });
    }
    void put(const table &of, std::string_view key, std::string_view value) {
        detail::call([&](qpair_error **e) {
            return qpair_transaction_put(handle_, of.handle(), key.data(), key.size(), value.data(), value.size(), e);
        });
    }
    bool insert(const table &of, std::string_view key, std::string_view value) {
        bool inserted = false;
        detail::call([&](qpair_error **e) {
            return qpair_transaction_insert(handle_, of.handle(), key.data(), key.size(), value.data(), value.size(),
                                            &inserted, e);
        });
        return inserted;
    }
    bool erase(const table &of, std::string_view key) {
        bool deleted = false;
        detail::call([&](qpair_error **e) {
            return qpair_transaction_delete(handle_, of.handle(), key.data(), key.size(), &deleted, e);
        });
        return deleted;
    }
    qpair::range scan(const table &of, const bounds &bounds = bounds::all()) {
        qpair_range *made = nullptr;
        detail::call([&](qpair_error **e) {
            return qpair_range_of_transaction(handle_, of.handle(), bounds.handle(), &made, e);
        });
        return qpair::range(made);
    }
    /* Ends the transaction; returns the timestamp of the commit. */
    std::uint64_t commit() {
        std::uint64_t timestamp = 0;
        detail::call([&](qpair_error **e) { return qpair_commit(release(), &timestamp, e); });
        return timestamp;
    }
    void rollback() noexcept { reset(); }
};

class snapshot : public detail::owner<qpair_snapshot, qpair_snapshot_release> {
public:
    using owner::owner;

    std::optional<value> get(const table &of, std::string_view key) const {
        return detail::lent([&](auto v, auto d, auto n, auto e) {
            return qpair_snapshot_get_lent(handle_, of.handle(), key.data(), key.size(), v, d, n, e);
        });
    }
    qpair::range scan(const table &of, const bounds &bounds = bounds::all()) const {
        qpair_range *made = nullptr;
        detail::call([&](qpair_error **e) {
            return qpair_range_of_snapshot(handle_, of.handle(), bounds.handle(), &made, e);
        });
        return qpair::range(made);
    }
};

class batch : public detail::owner<qpair_batch, qpair_batch_free> {
public:
    batch() {
        detail::call([&](qpair_error **e) { return qpair_batch_new(&handle_, e); });
    }
    batch &put(const table &of, std::string_view key, std::string_view value) {
        detail::call([&](qpair_error **e) {
            return qpair_batch_put(handle_, of.handle(), key.data(), key.size(), value.data(), value.size(), e);
        });
        return *this;
    }
    batch &erase(const table &of, std::string_view key) {
        detail::call([&](qpair_error **e) {
            return qpair_batch_delete(handle_, of.handle(), key.data(), key.size(), e);
        });
        return *this;
    }
    void clear() {
        detail::call([&](qpair_error **e) { return qpair_batch_clear(handle_, e); });
    }
};

class store : public detail::owner<qpair_store, qpair_close> {
public:
    using owner::owner;
    explicit store(const std::string &specifier) : store(specifier, options()) {}
    store(const std::string &specifier, const options &options) {
        detail::call([&](qpair_error **e) { return qpair_open(specifier.c_str(), options.handle(), &handle_, e); });
    }

    /* Closes the store and reports errors, which the destructor cannot. */
    void close() {
        detail::call([&](qpair_error **e) { return qpair_close(release(), e); });
    }
    qpair::table table(const std::string &name) {
        qpair_table *made = nullptr;
        detail::call([&](qpair_error **e) { return qpair_table_open(handle_, name.c_str(), &made, e); });
        return qpair::table(made);
    }
    /* A table whose values are compressed: by "lz4" or "zstd". */
    qpair::table table(const std::string &name, const std::string &compression) {
        qpair_table *made = nullptr;
        detail::call([&](qpair_error **e) {
            return qpair_table_open_compressed(handle_, name.c_str(), compression.c_str(), &made, e);
        });
        return qpair::table(made);
    }
    /* A table whose records are gone `ttl` after they were put last. */
    qpair::table table(const std::string &name, std::chrono::milliseconds ttl, const std::string &compression = "none") {
        qpair_table *made = nullptr;
        detail::call([&](qpair_error **e) {
            return qpair_table_open_expiring(handle_, name.c_str(), compression.c_str(),
                                             static_cast<uint64_t>(ttl.count()), &made, e);
        });
        return qpair::table(made);
    }
    void drop_table(const std::string &name) {
        detail::call([&](qpair_error **e) { return qpair_table_drop(handle_, name.c_str(), e); });
    }
    transaction begin(const qpair_transaction_options *options = nullptr) {
        qpair_transaction *made = nullptr;
        detail::call([&](qpair_error **e) { return qpair_begin(handle_, options, &made, e); });
        return transaction(made);
    }
    /* Runs `run(transaction &)` and commits; runs it again after a conflict. An exception rolls
     * back and is thrown on, except an error of a conflict. */
    template <class Run> void transact(Run &&run, const qpair_transaction_options *options = nullptr) {
        struct work {
            std::remove_reference_t<Run> &run;
            std::exception_ptr thrown;
        } work{run, nullptr};
        auto each = [](void *context, qpair_transaction *handle) -> int {
            auto &work = *static_cast<struct work *>(context);
            transaction lent(handle);
            work.thrown = nullptr;
            int code = QPAIR_OK;
            try {
                work.run(lent);
            } catch (const error &failed) {
                work.thrown = std::current_exception();
                code = failed.code();
            } catch (...) {
                work.thrown = std::current_exception();
                code = -1;
            }
            lent.release();
            return code;
        };
        qpair_error *failed = nullptr;
        int code = qpair_transact(handle_, options, each, &work, &failed);
        if (code == QPAIR_OK)
            return;
        if (work.thrown && code != QPAIR_CONFLICT) {
            qpair_error_free(failed);
            std::rethrow_exception(work.thrown);
        }
        throw error::of(code, failed);
    }
    qpair::snapshot snapshot() {
        qpair_snapshot *made = nullptr;
        detail::call([&](qpair_error **e) { return qpair_snapshot_take(handle_, &made, e); });
        return qpair::snapshot(made);
    }
    void write(const batch &changes) {
        detail::call([&](qpair_error **e) { return qpair_write(handle_, changes.handle(), e); });
    }
    void checkpoint() {
        detail::call([&](qpair_error **e) { return qpair_checkpoint(handle_, e); });
    }
    void backup(const std::string &target, bool force = false) {
        detail::call([&](qpair_error **e) {
            return qpair_backup(handle_, target.c_str(), force, nullptr, nullptr, e);
        });
    }
    std::string statistics(std::uint32_t form = QPAIR_STATISTICS_JSON) const {
        return detail::text([&](qpair_value **t, qpair_error **e) { return qpair_statistics(handle_, form, t, e); });
    }
};

/* The end of an asynchronous call. */
struct completion {
    std::uint64_t user_data = 0;
    std::uint32_t operation = QPAIR_OPERATION_NONE;
    std::uint64_t result = 0;
    std::optional<value> found;
    std::optional<error> failed;

    static completion of(const qpair_completion &raw) {
        completion made;
        made.user_data = raw.user_data;
        made.operation = raw.operation;
        made.result = raw.result;
        if (raw.value)
            made.found.emplace(raw.value, raw.data, raw.data_len);
        if (raw.code)
            made.failed = error::of(raw.code, raw.error);
        return made;
    }
};

class queue : public detail::owner<qpair_queue, qpair_queue_close> {
public:
    queue() {
        detail::call([&](qpair_error **e) { return qpair_queue_new(&handle_, e); });
    }
    int descriptor() const {
        int descriptor = -1;
        detail::call([&](qpair_error **e) { return qpair_queue_descriptor(handle_, &descriptor, e); });
        return descriptor;
    }
    void set_notifications(bool on) {
        detail::call([&](qpair_error **e) { return qpair_queue_set_notifications(handle_, on, e); });
    }
    std::size_t in_flight() const {
        std::size_t calls = 0;
        detail::call([&](qpair_error **e) { return qpair_queue_in_flight(handle_, &calls, e); });
        return calls;
    }
    /* Takes up to `max` completions, and waits for `min` of them; without `timeout` without limit. */
    std::vector<completion> wait(std::size_t min, std::size_t max = 64,
                                 std::optional<std::chrono::microseconds> timeout = std::nullopt) {
        std::vector<qpair_completion> raw(max);
        std::vector<completion> all;
        if (max == 0)
            return all;
        all.reserve(max);
        std::size_t taken = 0;
        raw[0].size = sizeof raw[0];
        detail::call([&](qpair_error **e) {
            return qpair_queue_wait(handle_, raw.data(), min, max, timeout ? timeout->count() : -1, &taken, e);
        });
        for (std::size_t at = 0; at < taken; at++)
            all.push_back(completion::of(raw[at]));
        return all;
    }
    std::vector<completion> take(std::size_t max = 64) { return wait(0, max); }

    /* Begins to look a key up; returns the completion if the value is in memory. */
    std::optional<completion> get_async(const table &of, std::string_view key, std::uint64_t user_data) {
        qpair_completion now{};
        now.size = sizeof now;
        detail::call([&](qpair_error **e) {
            return qpair_get_async(handle_, of.handle(), key.data(), key.size(), user_data, &now, e);
        });
        if (now.operation == QPAIR_OPERATION_NONE)
            return std::nullopt;
        return completion::of(now);
    }
    void put_async(const table &of, std::string_view key, std::string_view value, std::uint64_t user_data) {
        detail::call([&](qpair_error **e) {
            return qpair_put_async(handle_, of.handle(), key.data(), key.size(), value.data(), value.size(), user_data, e);
        });
    }
    void delete_async(const table &of, std::string_view key, std::uint64_t user_data) {
        detail::call([&](qpair_error **e) {
            return qpair_delete_async(handle_, of.handle(), key.data(), key.size(), user_data, e);
        });
    }
    void commit_async(transaction &&ended, std::uint64_t user_data) {
        detail::call([&](qpair_error **e) { return qpair_commit_async(handle_, ended.handle(), user_data, e); });
        ended.release();
    }
};

class device : public detail::owner<qpair_device, qpair_device_close> {
public:
    explicit device(const std::string &specifier, const qpair_device_options *options = nullptr) {
        detail::call([&](qpair_error **e) { return qpair_device_open(specifier.c_str(), options, &handle_, e); });
    }
    qpair_device_info info() const {
        qpair_device_info info{};
        info.size = sizeof info;
        detail::call([&](qpair_error **e) { return qpair_device_get_info(handle_, &info, e); });
        return info;
    }
    void read(queue &by, std::uint64_t offset, void *buffer, std::uint32_t len, std::uint64_t user_data) {
        detail::call([&](qpair_error **e) {
            return qpair_device_read(handle_, by.handle(), offset, buffer, len, user_data, e);
        });
    }
    void write(queue &by, std::uint64_t offset, std::string_view data, std::uint64_t user_data, std::uint32_t flags = 0) {
        detail::call([&](qpair_error **e) {
            return qpair_device_write(handle_, by.handle(), offset, data.data(), static_cast<std::uint32_t>(data.size()),
                                      flags, user_data, e);
        });
    }
    void flush(queue &by, std::uint64_t user_data) {
        detail::call([&](qpair_error **e) { return qpair_device_flush(handle_, by.handle(), user_data, e); });
    }
    void discard(queue &by, std::uint64_t offset, std::uint32_t len, std::uint64_t user_data) {
        detail::call([&](qpair_error **e) {
            return qpair_device_discard(handle_, by.handle(), offset, len, user_data, e);
        });
    }
};

} // namespace qpair

#endif
