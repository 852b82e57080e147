//! The client against the server: the operations of a driver on a function.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use crate::common::{Served, TestDevice, connect, count_of, event, folder, memory_file, wait_for};
use qpair_block::{Error, ErrorKind};
use qpair_memory::{Arena, ArenaOptions};
use qpair_pci::{PciDevice, PciFunction};
use qpair_vfio_user::codec::{Command, Header};
use qpair_vfio_user::{Client, ClientOptions, ServerOptions};

fn shared_arena() -> std::sync::Arc<Arena> {
    let options = ArenaOptions { shared: true, ..ArenaOptions::ordinary_pages() };
    Arena::new(4096, 16, options).unwrap()
}

/// SPDK's target sends no message before MSI-X is enabled, and gives up a controller whose INTx no
/// driver acknowledges.
#[test]
fn a_function_is_set_up_for_messages_and_put_back() {
    let served = Served::new();
    let client = connect(&served.path);
    let word = |at: u32| {
        let mut bytes = [0; 2];
        served.device.read_config(at, &mut bytes);
        u16::from_le_bytes(bytes)
    };
    assert_eq!(word(4), 0x0402, "no INTx");
    assert_eq!(word(0x42), 0x4003, "as it was found");
    client.set_irq(1, Some(event().as_fd())).unwrap();
    assert_eq!(word(0x42), 0x8003, "enabled, and not masked");
    client.set_irq(1, None).unwrap();
    drop(client);
    served.wait_until_alone();
    assert_eq!((word(4), word(0x42)), (0x0002, 0x0003));
}

#[test]
fn registers_and_configuration() {
    let served = Served::new();
    let client = connect(&served.path);
    assert_eq!(client.transport(), "vfio-user");
    assert!(client.name().starts_with("vfio-user:/"), "{}", client.name());
    assert_eq!((client.bar_bytes(0), client.bar_bytes(1), client.bar_bytes(9)), (0x2000, 0, 0));
    let mut id = [0; 4];
    client.read_config(0, &mut id).unwrap();
    assert_eq!(id, [0x36, 0x1B, 0x10, 0x00]);
    client.write_config(4, &[6, 4]).unwrap();
    let mut command = [0; 2];
    client.read_config(4, &mut command).unwrap();
    assert_eq!(command, [6, 4]);

    let mut register = [0; 8];
    client.read_bar(0, 0x10, &mut register).unwrap();
    assert_eq!(register, [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17]);
    client.write_bar(0, 0x14, &[1, 2, 3, 4]).unwrap();
    assert_eq!(served.device.register(0x16), 3);

    let kind = |result: Result<(), Error>| result.unwrap_err().kind();
    assert_eq!(kind(client.read_bar(0, 0x1FFC, &mut register)), ErrorKind::Invalid);
    assert_eq!(kind(client.read_bar(0, u64::MAX, &mut register)), ErrorKind::Invalid);
    assert_eq!(kind(client.read_bar(1, 0, &mut register)), ErrorKind::Invalid);
    assert_eq!(kind(client.read_config(256, &mut id)), ErrorKind::Invalid);
    client.reset().unwrap();
    assert_eq!(served.device.register(0x16), 0);
}

#[test]
fn doorbells_memory_and_interrupts() {
    let served = Served::new();
    let client = connect(&served.path);
    let arena = shared_arena();
    let iova = client.map_dma(&arena).unwrap();
    assert_eq!(client.map_dma(&arena).unwrap_err().kind(), ErrorKind::Exists);
    let mut buffer = arena.lease().unwrap();
    buffer.shared().store_u64(8, 1000);
    let at = buffer.as_ptr() as u64 - arena.region().0 as u64 + 8;
    client.write_bar(0, TestDevice::TARGET, &(iova + at).to_le_bytes()).unwrap();

    assert_eq!(client.irq_count(), TestDevice::VECTORS);
    let interrupt = event();
    client.set_irq(0, Some(interrupt.as_fd())).unwrap();
    assert!(client.set_irq(TestDevice::VECTORS, None).is_err());

    assert!(client.map_bar(0, 0, 0x1000).unwrap().is_none(), "registers are not shared");
    assert!(client.map_bar(0, 0x1800, 0x1000).unwrap().is_none(), "past the end");
    let doorbells = client.map_bar(0, 0x1000, 0x1000).unwrap().unwrap();
    doorbells.bytes().store_u32(0, 7);
    wait_for("the device's store", || buffer.shared().load_u64(8) == 1007);
    let mut interrupts = 0;
    wait_for("the interrupt", || {
        interrupts += count_of(&interrupt);
        interrupts > 0
    });
    assert_eq!(interrupts, 1);
    assert_eq!(served.counters().trapped_writes, 0);

    client.set_irq(0, None).unwrap();
    client.write_bar(0, 0x1000, &9u32.to_le_bytes()).unwrap();
    wait_for("the device's store", || buffer.shared().load_u64(8) == 1016);
    assert_eq!(count_of(&interrupt), 0);
    assert_eq!(served.counters().trapped_writes, 1, "that one went over the socket");

    assert_eq!(served.counters().dma_maps, 1);
    client.unmap_dma(&arena).unwrap();
    assert!(served.device.dma.lock().unwrap().is_empty());
    assert_eq!(client.unmap_dma(&arena).unwrap_err().kind(), ErrorKind::NotFound);
    let alone = Arena::new(4096, 1, ArenaOptions::ordinary_pages()).unwrap();
    let error = client.map_dma(&alone).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.way_out().is_some());
}

#[test]
fn doorbells_that_are_not_mapped() {
    let served = Served::with(ServerOptions { mapped: false, ..ServerOptions::default() });
    let client = connect(&served.path);
    assert!(client.map_bar(0, 0x1000, 0x1000).unwrap().is_none());
    client.write_bar(0, 0x1000, &[1, 0, 0, 0]).unwrap();
    assert_eq!(served.counters().trapped_writes, 1);
}

#[test]
fn what_the_device_refuses() {
    let served = Served::new();
    let client = connect(&served.path);
    let arenas: Vec<_> = (0..9).map(|_| shared_arena()).collect();
    for arena in &arenas[..8] {
        client.map_dma(arena).unwrap();
    }
    let error = client.map_dma(&arenas[8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    client.unmap_dma(&arenas[0]).unwrap();
    client.map_dma(&arenas[8]).unwrap();
}

#[test]
fn one_driver_at_a_time_and_nothing_of_it_stays() {
    let served = Served::new();
    let first = connect(&served.path);
    let arena = shared_arena();
    first.map_dma(&arena).unwrap();
    let interrupt = event();
    first.set_irq(1, Some(interrupt.as_fd())).unwrap();
    first.write_bar(0, 0, &[0xAA; 4]).unwrap();
    let doorbells = first.map_bar(0, 0x1000, 0x1000).unwrap().unwrap();
    for _ in 0..20 {
        let error = Client::connect(&served.path, &ClientOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(error.way_out().is_some());
    }
    drop(first);
    served.wait_until_alone();
    assert!(served.device.dma.lock().unwrap().is_empty());
    assert!(served.device.irqs.lock().unwrap().iter().all(Option::is_none));
    let second = connect(&served.path);
    let mut register = [0xBB; 4];
    second.read_bar(0, 0, &mut register).unwrap();
    assert_eq!(register, [0; 4], "the device was reset");
    // The doorbells that the first client still has mapped no longer reach the device.
    let theirs = second.map_bar(0, 0x1000, 0x1000).unwrap().unwrap();
    doorbells.bytes().store_u32(0x10, 7);
    assert_eq!(theirs.bytes().load_u32(0x10), 0);
    second.read_bar(0, 0x1010, &mut register).unwrap();
    assert_eq!(register, [0; 4]);
    assert_eq!(served.counters().clients, 2);
    assert_eq!(served.counters().refused, 20);
}

#[test]
fn a_device_that_goes() {
    let served = Served::new();
    let client = connect(&served.path);
    let arena = shared_arena();
    client.map_dma(&arena).unwrap();
    let path = served.path.clone();
    drop(served);
    let error = client.read_bar(0, 0, &mut [0; 4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    let error = client.write_bar(0, 0, &[0; 4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    assert_eq!(client.unmap_dma(&arena).unwrap_err().kind(), ErrorKind::Gone);
    assert_eq!(std::sync::Arc::strong_count(&arena), 1, "kept no longer");
    assert!(!path.exists(), "the socket went with its server");
}

#[test]
fn places_where_no_device_is() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let fails = |path: &Path| {
        let options = ClientOptions { timeout: Duration::from_millis(300), ..Default::default() };
        let error = Client::connect(path, &options).unwrap_err();
        assert!(error.way_out().is_some(), "no way out: {error}");
        error
    };
    assert_eq!(fails(&at("nothing")).kind(), ErrorKind::NotFound);
    assert_eq!(fails(folder.path()).kind(), ErrorKind::NotFound, "a folder without cntrl");
    std::fs::write(at("file"), "text").unwrap();
    assert_eq!(fails(&at("file")).kind(), ErrorKind::Gone);
    drop(UnixListener::bind(at("left")).unwrap());
    assert_eq!(fails(&at("left")).kind(), ErrorKind::Gone);
    assert_eq!(fails(&at(&"x".repeat(150))).kind(), ErrorKind::Invalid);
    std::os::unix::net::UnixDatagram::bind(at("datagram")).unwrap();
    fails(&at("datagram"));
}

/// Runs a server that answers the first message by `answer`. With `stay`, it keeps the connection
/// open until the client sends more or closes it.
fn odd_server(path: &Path, answer: impl FnOnce(Header) -> Vec<u8> + Send + 'static, stay: bool) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut message = [0; 4096];
        let _ = stream.read(&mut message).unwrap();
        let _ = stream.write_all(&answer(Header::parse(&message).unwrap()));
        if stay {
            let _ = stream.read(&mut message);
        }
    });
}

#[test]
fn servers_that_are_something_else() {
    let folder = folder();
    let mut count = 0;
    let mut fails = |answer: fn(Header) -> Vec<u8>, stay: bool| {
        count += 1;
        let path = folder.path().join(format!("odd{count}"));
        odd_server(&path, answer, stay);
        let options = ClientOptions { timeout: Duration::from_millis(500), ..Default::default() };
        let error = Client::connect(&path, &options).unwrap_err();
        assert!(error.way_out().is_some(), "no way out: {error}");
        (error.kind(), error.to_string())
    };
    let (kind, text) = fails(|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), true);
    assert_eq!(kind, ErrorKind::Unsupported, "{text}");
    let (kind, text) = fails(|_| Vec::new(), false);
    assert!(kind == ErrorKind::Unsupported && text.contains("vfio-user"), "{text}");
    let (kind, text) = fails(|_| b"220 hello".to_vec(), false);
    assert_eq!(kind, ErrorKind::Unsupported, "{text}");
    let (kind, text) = fails(|_| Vec::new(), true);
    assert!(kind == ErrorKind::Gone && text.contains("did not answer"), "{text}");
    let (kind, text) = fails(|asked| asked.reply(4).message(&[1, 0, 0, 0]), true);
    assert!(kind == ErrorKind::Unsupported && text.contains("1.0"), "{text}");
    let (kind, text) = fails(|asked| asked.reply(3).message(&[0; 3]), true);
    assert_eq!(kind, ErrorKind::Unsupported, "{text}");
    // Error numbers that are invalid.
    for answer in [
        (|asked: Header| asked.error(u32::MAX).message(&[])) as fn(Header) -> Vec<u8>,
        |asked| asked.error(1 << 30).message(&[]),
        |asked| asked.error(0).message(&[]),
        |asked| asked.error(4096).message(&[]),
    ] {
        let (kind, text) = fails(answer, true);
        assert!(kind == ErrorKind::Io && text.contains("refused Version"), "{text}");
    }
    // Agrees, and is gone.
    let (kind, text) = fails(|asked| asked.reply(4).message(&[0; 4]), false);
    assert!(kind == ErrorKind::Gone && text.contains("GetDeviceInfo"), "{text}");
    // The server first sends a request of its own, as a device may that accesses memory by
    // messages.
    let (kind, text) = fails(
        |asked| {
            let ask = Header::command(9, Command::DmaRead, 16).message(&[0; 16]);
            [ask, asked.reply(4).message(&[0; 4])].concat()
        },
        true,
    );
    assert!(kind == ErrorKind::Gone, "{text}");
}

#[test]
fn a_device_that_takes_its_registers_away() {
    let served = Served::new();
    let file = memory_file(0x2000);
    *served.device.other_file.lock().unwrap() = Some(file.try_clone().unwrap());
    let client = connect(&served.path);
    let doorbells = client.map_bar(0, 0x1000, 0x1000).unwrap().unwrap();
    doorbells.bytes().store_u32(0, 1);
    client.read_bar(0, 0, &mut [0; 4]).unwrap();
    rustix::fs::ftruncate(&file, 0).unwrap();
    // A regression: this ended the process without a message.
    doorbells.bytes().store_u32(0, 2);
    assert!(doorbells.is_cut());
    for _ in 0..2 {
        let error = client.read_bar(0, 0, &mut [0; 4]).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Gone && error.to_string().contains("cut short"),
            "{error}"
        );
        assert!(error.way_out().is_some());
    }
    // A client of another device is not affected.
    let other = Served::new();
    connect(&other.path).read_bar(0, 0, &mut [0; 4]).unwrap();
}
