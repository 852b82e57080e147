/* Opens a store, writes in a transaction, scans by prefix, and closes.
 *
 *   c++ -std=c++17 store.cpp $(pkg-config --cflags --libs qpair) -o store && ./store FILE */
#include <iostream>
#include <qpair.hpp>

int main(int argc, char **argv) {
    qpair::options options;
    options.set("memory", "16MiB").set("buffered", true);
    qpair::store store(argc > 1 ? argv[1] : "ram:size=16MiB", options);
    qpair::table users = store.table("users");

    store.transact([&](qpair::transaction &transaction) {
        transaction.put(users, "user/ada", "1815");
        transaction.put(users, "user/alan", "1912");
    });
    for (auto [key, value] : users.scan(qpair::bounds::prefix("user/")))
        std::cout << key << ' ' << value << '\n';

    users.reset();
    store.close();
}
