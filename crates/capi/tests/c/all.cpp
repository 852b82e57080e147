/* Every call of the C++ wrapper, and with it those of the C interface. Run by crates/capi/test with a folder and the interface to the
 * kernel. */
#include <cstdlib>
#include <iostream>
#include <map>
#include <poll.h>
#include <qpair.hpp>
#include <thread>

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            std::cerr << "line " << __LINE__ << ": not " << #condition << std::endl;   \
            std::exit(1);                                                              \
        }                                                                              \
    } while (0)

template <class Run> static int code_of(Run &&run) {
    try {
        run();
    } catch (const qpair::error &failed) {
        CHECK(std::string(failed.what()).size() > 10);
        return failed.code();
    }
    return QPAIR_OK;
}

static std::string number(int i) {
    std::string text = std::to_string(i);
    return std::string(6 - text.size(), '0') + text;
}

using records = std::vector<std::pair<std::string, std::string>>;

static records all_of(qpair::range range) {
    records all;
    for (auto [key, value] : range)
        all.emplace_back(key, value);
    return all;
}

/* The bounds of ranges, and what they have in a map. */
template <class Scan> static void check_ranges(const std::map<std::string, std::string> &model, Scan &&scan) {
    using qpair::bounds;
    auto expected = [&](auto from, auto to, bool reverse) {
        records all(from, to);
        if (reverse)
            all = records(all.rbegin(), all.rend());
        return all;
    };
    for (bool reverse : {false, true}) {
        CHECK(all_of(scan(bounds::all().reverse(reverse))) == expected(model.begin(), model.end(), reverse));
        for (auto [from, to] : {std::pair(10, 700), std::pair(0, 16), std::pair(3, 3), std::pair(250, 560)}) {
            auto low = model.lower_bound(number(from)), high = model.lower_bound(number(to));
            auto after = model.upper_bound(number(from)), with = model.upper_bound(number(to));
            auto lower = number(from), upper = number(to);
            CHECK(all_of(scan(bounds::from(lower).to(upper).reverse(reverse))) == expected(low, high, reverse));
            CHECK(all_of(scan(bounds::from(lower).to(upper).with_to().reverse(reverse))) == expected(low, with, reverse));
            if (from < to)
                CHECK(all_of(scan(bounds::from(lower).after_from().to(upper).with_to().reverse(reverse))) ==
                      expected(after, with, reverse));
        }
        for (std::uint64_t limit : {1, 16, 17, 300}) {
            records all = expected(model.begin(), model.end(), reverse);
            all.resize(limit);
            CHECK(all_of(scan(bounds::all().reverse(reverse).limit(limit))) == all);
        }
        CHECK(all_of(scan(bounds::prefix("0001").reverse(reverse))) ==
              expected(model.lower_bound("0001"), model.lower_bound("0002"), reverse));
        CHECK(all_of(scan(bounds::prefix("none"))).empty());
    }
}

static void tables(qpair::store &store) {
    qpair::table table = store.table("t");
    CHECK(!table.put("a", "1") && table.put("a", "2"));
    CHECK(!table.insert("a", "3") && table.insert("b", ""));
    CHECK(table.get("a") == "2" && table.get("b") == "" && !table.get("c"));
    CHECK(table.get_lent("a")->view() == "2" && table.get_lent("b")->view().empty() && !table.get_lent("c"));
    std::string large(100000, 'x'), into;
    table.put("large", large);
    CHECK(table.get("large", into) && into == large);
    CHECK(table.compare_and_swap("a", "2", "4") && !table.compare_and_swap("a", "2", "5"));
    CHECK(table.compare_and_swap("new", std::nullopt, "") && !table.compare_and_swap("new", std::nullopt, "x"));
    CHECK(table.compare_and_swap("new", "", std::nullopt) && !table.get("new"));
    CHECK(table.erase("b") && !table.erase("b"));
    CHECK(code_of([&] { table.put(std::string(66000, 'k'), ""); }) == QPAIR_KEY_TOO_LONG);
    CHECK(code_of([&] { table.put("k", std::string((16 << 20) + 1, 'v')); }) == QPAIR_VALUE_TOO_LONG);

    qpair::table other = store.table("other");
    qpair::batch batch;
    batch.put(table, "x", "1").put(other, "y", "2").erase(table, "large");
    store.write(batch);
    CHECK(table.get("x") == "1" && other.get("y") == "2" && !table.get("large"));
    batch.clear();
    store.write(batch);

    qpair::snapshot before = store.snapshot();
    table.put("x", "later");
    CHECK(before.get(table, "x")->view() == "1" && !before.get(table, "none"));
    CHECK(all_of(before.scan(other)) == (records{{"y", "2"}}));
    CHECK(table.erase(qpair::bounds::prefix("x")) == 1);

    qpair_value *names = nullptr;
    CHECK(qpair_table_names(store.handle(), &names, nullptr) == QPAIR_OK);
    CHECK(std::string(qpair_value_text(names)) == "[\"other\",\"t\"]");
    CHECK(qpair_value_release(names, nullptr) == QPAIR_OK);
    CHECK(qpair_table_rename(store.handle(), "other", "renamed", nullptr) == QPAIR_OK);
    CHECK(qpair_table_rename(store.handle(), "other", "renamed", nullptr) == QPAIR_NOT_FOUND);
    store.drop_table("renamed");
    CHECK(code_of([&] { other.get("y"); }) == QPAIR_NOT_FOUND);
    bool read_only = true;
    CHECK(qpair_is_read_only(store.handle(), &read_only, nullptr) == QPAIR_OK && !read_only);
}

static void ranges(qpair::store &store) {
    std::map<std::string, std::string> model;
    for (int i = 0; i < 1000; i++)
        model[number(i)] = i % 100 ? number(i * 7 % 1000) : std::string(5000, 'v');
    qpair::table table = store.table("ranges");
    CHECK(table.load(model.begin(), model.end()) == 1000);
    std::uint64_t estimate = 0;
    CHECK(qpair_count_estimate(table.handle(), &estimate, nullptr) == QPAIR_OK && estimate > 500 && estimate < 2000);
    check_ranges(model, [&](const qpair::bounds &bounds) { return table.scan(bounds); });
    qpair::snapshot snapshot = store.snapshot();
    check_ranges(model, [&](const qpair::bounds &bounds) { return snapshot.scan(table, bounds); });
    qpair::transaction transaction = store.begin();
    auto own = model;
    for (int i = 0; i < 1000; i += 3) {
        own.erase(number(i));
        transaction.erase(table, number(i));
    }
    own[number(500)] = "own";
    transaction.put(table, number(500), "own");
    check_ranges(own, [&](const qpair::bounds &bounds) { return transaction.scan(table, bounds); });
    transaction.rollback();
    check_ranges(model, [&](const qpair::bounds &bounds) { return snapshot.scan(table, bounds); });
    qpair::table again = store.table("again");
    struct thrown {};
    struct throwing {
        int at = 0;
        std::pair<std::string, std::string> now{"k", "v"};
        const std::pair<std::string, std::string> *operator->() const { return &now; }
        throwing &operator++() { throw thrown(); }
        bool operator==(const throwing &) const { return false; }
    };
    bool was_thrown = false;
    try {
        again.load(throwing(), throwing());
    } catch (const thrown &) {
        was_thrown = true;
    }
    CHECK(was_thrown && !again.get("k"));
}

static void transactions(qpair::store &store) {
    qpair::table table = store.table("t");
    table.put("count", "0");
    /* Many threads count; each conflict is run again. */
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++)
        threads.emplace_back([&] {
            for (int i = 0; i < 50; i++)
                store.transact([&](qpair::transaction &transaction) {
                    int count = std::stoi(transaction.get(table, "count")->str());
                    transaction.put(table, "count", std::to_string(count + 1));
                });
        });
    for (auto &thread : threads)
        thread.join();
    CHECK(table.get("count") == "200");
    /* An exception rolls back, and is the one that the caller gets. */
    struct own {};
    bool thrown = false;
    try {
        store.transact([&](qpair::transaction &transaction) {
            CHECK(transaction.insert(table, "rolled back", "") && transaction.erase(table, "count"));
            throw own();
        });
    } catch (const own &) {
        thrown = true;
    }
    CHECK(thrown && !table.get("rolled back") && table.get("count") == "200");
    qpair_transaction_options options{};
    options.size = sizeof options;
    options.read_only = 1;
    options.name = "reader";
    CHECK(code_of([&] {
              store.transact([&](qpair::transaction &reader) { reader.put(table, "k", "v"); }, &options);
          }) == QPAIR_READ_ONLY);
    /* A wait for a lock that another transaction has. */
    qpair::transaction holder = store.begin();
    holder.get(table, "count", true);
    options.read_only = 0;
    options.lock_timeout_us = 1000;
    qpair::transaction waiter = store.begin(&options);
    CHECK(code_of([&] { waiter.get(table, "count", true); }) == QPAIR_TIMED_OUT);
    bool swapped = false;
    CHECK(qpair_transaction_compare_and_swap(holder.handle(), table.handle(), "count", 5, "200", 3, "201", 3, &swapped,
                                             nullptr) == QPAIR_OK);
    std::uint64_t first = holder.commit(), second = store.begin().commit();
    CHECK(swapped && second >= first && table.get("count") == "201");
}

static void asynchronous(qpair::store &store) {
    qpair::table table = store.table("t");
    qpair::queue queue;
    for (int i = 0; i < 100; i++)
        queue.put_async(table, number(i), number(i), i);
    int puts = 0;
    while (queue.in_flight() > 0)
        for (auto &done : queue.wait(1)) {
            CHECK(!done.failed && done.operation == QPAIR_OPERATION_PUT && done.result == 0);
            puts++;
        }
    CHECK(puts == 100);
    int gets = 0;
    auto check = [&](const qpair::completion &done) {
        CHECK(!done.failed && (done.user_data == 1000) == !done.found);
        CHECK(!done.found || done.found->view() == number(int(done.user_data)));
        gets++;
    };
    for (int i = 0; i < 100; i++)
        if (auto now = queue.get_async(table, number(i), i))
            check(*now);
    if (auto now = queue.get_async(table, "none", 1000))
        check(*now);
    while (queue.in_flight() > 0)
        for (auto &done : queue.wait(1))
            check(done);
    CHECK(gets == 101 && queue.take().empty());
    /* Without a place for it, what is there at once comes by the queue, and the descriptor says so. */
    CHECK(qpair_get_async(queue.handle(), table.handle(), "000001", 6, 1, nullptr, nullptr) == QPAIR_OK);
    pollfd event{queue.descriptor(), POLLIN, 0};
    CHECK(poll(&event, 1, 60000) == 1);
    for (auto &done : queue.wait(1))
        check(done);
    CHECK(poll(&event, 1, 0) == 0);
    queue.delete_async(table, "000001", 2);
    queue.put_async(table, std::string(66000, 'k'), "", 3);
    for (auto &done : queue.wait(2)) {
        CHECK((done.user_data == 2) == !done.failed);
        CHECK(!done.failed || done.failed->code() == QPAIR_KEY_TOO_LONG);
    }
    qpair::transaction first = store.begin(), second = store.begin();
    first.put(table, "race", "1");
    qpair::batch batch;
    batch.put(table, "batched", "1");
    CHECK(qpair_write_async(queue.handle(), store.handle(), batch.handle(), 4, nullptr) == QPAIR_OK);
    queue.commit_async(std::move(first), 5);
    auto done = queue.wait(2);
    CHECK(done.size() == 2 && !done[0].failed && !done[1].failed && table.get("race") == "1" && table.get("batched") == "1");
    CHECK(queue.wait(1, 1, std::chrono::microseconds(1)).empty());
}

static void devices(const std::string &name, const std::string &io) {
    qpair_device_options options{};
    options.size = sizeof options;
    options.buffered = 1;
    options.depth = 4;
    options.io = io.c_str();
    qpair::device device(name, &options);
    qpair_device_info info = device.info();
    CHECK(info.size_bytes >= 1 << 20 && info.depth == 4 && info.logical_block_bytes <= 4096);
    qpair::queue queue;
    std::string data(8192, 'd'), back(8192, 0);
    for (int i = 0; i < 4; i++)
        device.write(queue, i * 8192, data, i);
    int refused = code_of([&] { device.write(queue, 0, data, 9); });
    CHECK(refused == QPAIR_BUSY || refused == QPAIR_OK);
    while (queue.in_flight() > 0)
        for (auto &done : queue.wait(1))
            CHECK(!done.failed);
    device.flush(queue, 0);
    CHECK(queue.wait(1).size() == 1);
    device.read(queue, 3 * 8192, back.data(), 8192, 7);
    auto done = queue.wait(1);
    CHECK(done.size() == 1 && !done[0].failed && done[0].user_data == 7 && back == data);
    CHECK(qpair_device_write_zeroes(device.handle(), queue.handle(), 0, 8192, 8, nullptr) == QPAIR_OK);
    done = queue.wait(1);
    CHECK(done.size() == 1 && (!done[0].failed || done[0].failed->code() == QPAIR_UNSUPPORTED));
}

static int count_calls(void *context, std::uint64_t, std::uint64_t) {
    ++*static_cast<int *>(context);
    return 0;
}

/* An encrypted store, with a table of compressed values. */
static void transformed(const std::string &path, const std::string &io) {
    const std::string key(64, '7'), other(64, '8'), value(5000, 'v');
    const auto with = [&](const std::string &key) {
        qpair::options options;
        options.set("buffered", true).set("workers", 1).set("io", io);
        if (!key.empty()) options.set("encryption_key", key);
        return options;
    };
    CHECK(code_of([&] { with("7777"); }) == QPAIR_INVALID);
    CHECK(code_of([&] { qpair::options().set("key_file", path + ".none"); }) == QPAIR_INVALID);
    {
        qpair::store store(path, with(key));
        qpair::table table = store.table("t", "lz4");
        table.put("k", value);
        CHECK(table.get("k") == value);
        CHECK(store.statistics(QPAIR_STATISTICS_PROMETHEUS).find("qpair_compressed_value_bytes_total 5000") != std::string::npos);
        CHECK(code_of([&] { store.table("t", "zstd"); }) == QPAIR_EXISTS);
        CHECK(code_of([&] { store.table("u", "zip"); }) == QPAIR_INVALID);
        using std::chrono::milliseconds;
        store.table("hour", milliseconds(3600000)).put("k", value);
        CHECK(store.table("hour").get("k") == value);
        CHECK(code_of([&] { store.table("hour", milliseconds(5000)); }) == QPAIR_EXISTS);
        CHECK(code_of([&] { store.table("u", milliseconds(7)); }) == QPAIR_INVALID);
        store.close();
    }
    for (const std::string &wrong : {std::string(), other})
        CHECK(code_of([&] { qpair::store store(path, with(wrong)); }) == QPAIR_DENIED);
    qpair::store store(path, with(key));
    CHECK(store.table("t").get("k") == value);
}

int main(int, char **argv) {
    std::string path = std::string(argv[1]) + "/all.qpair", io = argv[2];
    {
        qpair::store store(path, qpair::options().set("memory", "8MiB").set("buffered", true).set("workers", 2)
            .set("readers_max", "64MiB").set("checkpoint_every_ms", 3600000).set("io", io));
        tables(store);
        ranges(store);
        transactions(store);
        asynchronous(store);
        CHECK(store.statistics().front() == '{' && store.statistics().find("\"commits\":") != std::string::npos);
        CHECK(store.statistics(QPAIR_STATISTICS_PROMETHEUS).find("qpair_commits_total") != std::string::npos);
        store.checkpoint();
        int calls = 0;
        std::uint64_t before = 0, after = 0;
        qpair_error *error = nullptr;
        int code = qpair_compact(store.handle(), count_calls, &calls, &before, &after, &error);
        CHECK(code == QPAIR_OK && before >= after && after > 0);
        store.backup("ram:size=64MiB");
        CHECK(code_of([&] { qpair::store second(path, qpair::options().set("buffered", true)); }) == QPAIR_BUSY);
        store.table("t").put("count", "later");
        {
            qpair::store beside(path, qpair::options().set("buffered", true).set("read_only", true).set("io", io));
            CHECK(beside.table("t").get("count") == "201");
            store.checkpoint();
            CHECK(beside.table("t").get("count") == "201");
            CHECK(code_of([&] { beside.table("t").put("k", "v"); }) == QPAIR_READ_ONLY);
        }
        {
            qpair::store beside(path, qpair::options().set("buffered", true).set("beside_writer", true).set("io", io));
            CHECK(beside.table("t").get("count") == "later");
        }
        store.table("t").put("count", "201");
        store.close();
    }
    {
        qpair::store store(path, qpair::options().set("buffered", true).set("read_only", true).set("io", io));
        CHECK(store.table("t").get("count") == "201");
        CHECK(code_of([&] { store.table("t").put("k", "v"); }) == QPAIR_READ_ONLY);
    }
    transformed(path + ".encrypted", io);
    devices("ram:size=1MiB", io);
    devices(path, io);
    CHECK(qpair_open_handles() == 0);
}
