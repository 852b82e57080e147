//! Specifiers: parsing, formatting, and what is refused.

use std::path::Path;
use std::sync::Arc;

use qpair_block::{
    BlockDevice, DelayOptions, DeviceSpec, Error, ErrorKind, FaultOptions, NullOptions, RamDevice,
    RamOptions, SharedWay,
};

fn parse(text: &str) -> DeviceSpec {
    DeviceSpec::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn file(path: &str) -> DeviceSpec {
    DeviceSpec::File(path.into())
}

#[test]
fn reads_what_the_documentation_shows() {
    assert_eq!(parse("/dev/nvme0n1"), file("/dev/nvme0n1"));
    assert_eq!(parse("data.qpair"), file("data.qpair"));
    assert_eq!(parse("file:ram:size=1"), file("ram:size=1"));
    assert_eq!(parse("./a:b,c"), file("./a:b,c"));
    let ram = RamOptions { size_bytes: 64 << 20, ..RamOptions::default() };
    assert_eq!(parse("ram:size=64MiB"), DeviceSpec::Ram(ram));
    assert_eq!(parse("ram:"), DeviceSpec::Ram(RamOptions::default()));
    assert_eq!(parse("null:size=1TiB"), DeviceSpec::Null(NullOptions { size_bytes: 1 << 40 }));
    let options = DelayOptions { read_us: 100, write_us: 50, flush_us: 0 };
    let inner = Box::new(file("/tmp/a,b:c"));
    assert_eq!(
        parse("delay:read_us=100,write_us=50,flush_us=0:/tmp/a,b:c"),
        DeviceSpec::Delay { options, inner: inner.clone() }
    );
    assert_eq!(
        parse("delay:/tmp/a,b:c"),
        DeviceSpec::Delay { options: DelayOptions::default(), inner: inner.clone() }
    );
    let options = FaultOptions { seed: 1, read_error_rate: 0.01, ..FaultOptions::default() };
    assert_eq!(
        parse("fault:seed=1,read_error_rate=0.01:/tmp/a,b:c"),
        DeviceSpec::Fault { options, inner }
    );
    let inner = Box::new(file("/tmp/a,b:c"));
    for (text, way) in
        [("iothread:/tmp/a,b:c", SharedWay::IoThread), ("onelock:/tmp/a,b:c", SharedWay::OneLock)]
    {
        assert_eq!(parse(text), DeviceSpec::Shared { way, inner: inner.clone() });
    }
    assert_eq!(
        parse("stripe:unit=4k:/dev/a+/dev/b+[stripe:c+d]+[odd\\+na\\]me]"),
        DeviceSpec::Stripe {
            unit_bytes: 4096,
            members: vec![
                file("/dev/a"),
                file("/dev/b"),
                DeviceSpec::Stripe { unit_bytes: 65536, members: vec![file("c"), file("d")] },
                file("odd+na]me"),
            ],
        }
    );
}

#[test]
fn refuses_the_rest_and_says_what_is_known() {
    for (text, said) in [
        ("", "empty"),
        ("file:", "empty"),
        ("delay:read_us=1:", "empty"),
        ("rbd:0000:01:00.0", "the kinds are file:, ram:"),
        ("ram:sise=1", "the options are size, block"),
        ("ram:size", "no value"),
        ("ram:size=1q", "has an unknown unit"),
        ("ram:size=1k,size=2k", "twice"),
        ("ram:block=8GiB", "below 4GiB"),
        ("delay:read_ms=1:a", "the options are read_us"),
        ("delay:read_us=-1:a", "whole microseconds"),
        ("fault:read_error_rate=2:a", "from 0 to 1"),
        ("fault:read_error_rate=NaN:a", "from 0 to 1"),
        ("carve:a", "no slice is named"),
        ("carve:name=a]b:a", "no slice is named"),
        ("stripe:unit=64KiB:", "missing"),
        ("stripe:a++b", "missing"),
        ("stripe:a+", "missing"),
        ("stripe:[a", "not closed"),
        ("stripe:[a]b", "bracket"),
        ("stripe:[a\\]", "not closed"),
        ("a\0b", "NUL"),
    ] {
        let error = DeviceSpec::parse(text).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        assert!(error.to_string().contains(said), "{text}: {error}");
    }
    assert!(DeviceSpec::parse(&"delay:".repeat(100_000)).is_err());
}

fn random(rng: &mut fastrand::Rng, depth: u32) -> DeviceSpec {
    let inner = |rng: &mut fastrand::Rng| Box::new(random(rng, depth + 1));
    match rng.u32(0..if depth < 4 { 8 } else { 3 }) {
        0 => {
            let alphabet: Vec<char> = "ab/.:,=+[]\\()é -_".chars().collect();
            let len = rng.usize(1..12);
            let path: String = (0..len).map(|_| alphabet[rng.usize(..alphabet.len())]).collect();
            file(&path)
        }
        1 => DeviceSpec::Ram(RamOptions {
            size_bytes: rng.u64(..) >> rng.u32(0..64),
            logical_block_bytes: rng.u32(..),
            growable: rng.bool(),
            read_only: rng.bool(),
        }),
        2 => DeviceSpec::Null(NullOptions { size_bytes: rng.u64(..) }),
        3 => DeviceSpec::Delay {
            options: DelayOptions { read_us: rng.u64(..), write_us: 0, flush_us: rng.u64(..9) },
            inner: inner(rng),
        },
        4 => DeviceSpec::Fault {
            options: FaultOptions {
                seed: rng.u64(..),
                read_error_rate: rng.f64(),
                write_error_rate: rng.f64() / 1e9,
                flush_error_rate: 0.0,
                corrupt_read_rate: 1.0,
            },
            inner: inner(rng),
        },
        6 => DeviceSpec::Shared {
            way: if rng.bool() { SharedWay::IoThread } else { SharedWay::OneLock },
            inner: inner(rng),
        },
        5 => DeviceSpec::Carved { name: format!("s{}", rng.u8(..)), inner: inner(rng) },
        _ => DeviceSpec::Stripe {
            unit_bytes: rng.u64(..),
            members: (0..rng.u32(1..4)).map(|_| *inner(rng)).collect(),
        },
    }
}

#[test]
fn writes_what_it_reads() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..5000 {
        let spec = random(&mut rng, 0);
        assert_eq!(parse(&spec.to_string()), spec, "{spec}");
    }
}

#[test]
fn no_text_makes_it_panic() {
    let mut rng = fastrand::Rng::with_seed(8);
    for _ in 0..5000 {
        let mut text = random(&mut rng, 0).to_string().into_bytes();
        for _ in 0..rng.u32(1..4) {
            let at = rng.usize(..text.len());
            text[at] = rng.choice(b":,=+[]\\a0".iter().copied()).unwrap_or(b':');
        }
        if let Ok(text) = String::from_utf8(text)
            && let Ok(spec) = DeviceSpec::parse(&text)
        {
            assert_eq!(parse(&spec.to_string()), spec, "{text}");
        }
    }
}

#[test]
fn opens_what_it_names() {
    let files = |path: &Path| -> Result<Arc<dyn BlockDevice>, Error> {
        match path.to_str() {
            Some("/dev/a") => Ok(Arc::new(RamDevice::new(RamOptions::default())?)),
            _ => Err(Error::new(ErrorKind::NotFound, path.display().to_string())),
        }
    };
    let text = "stripe:unit=4KiB:delay:read_us=1:/dev/a+fault:seed=3:/dev/a+ram:size=1MiB";
    let spec = parse(text);
    assert_eq!(spec.paths(), [Path::new("/dev/a"), Path::new("/dev/a")]);
    let device = spec.open(&files).unwrap();
    assert_eq!(device.size_bytes(), 3 << 20);
    assert_eq!(device.info().interface, "stripe+delay+ram+fault+ram+ram");
    let missing = parse("delay:/dev/b").open(&files).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    // The name that a device reports is a valid specifier, too.
    parse(&device.info().name);
}

#[test]
fn drivers_are_named_and_not_known() {
    for text in [
        "nvme:0000:3b:00.0/ns2",
        "nvme:wait=sleep:vfio-user:/run/a,b:c.sock",
        "softnvme:size=1GiB,profile=tlc",
        "stripe:unit=64KiB:nvme:0000:3b:00.0+softnvme:size=1GiB",
        "stripe:unit=64KiB:[nvme:vfio-user:/run/odd\\+name]+b",
        "delay:read_us=1,write_us=0,flush_us=0:softnvme:",
    ] {
        let spec = parse(text);
        assert_eq!(spec.to_string(), text);
        assert_eq!(parse(&spec.to_string()), spec);
    }
    let DeviceSpec::Driven { driver, name } = parse("nvme:vfio-user:/a/ns1") else { panic!() };
    assert_eq!((driver, &name[..]), ("nvme", "vfio-user:/a/ns1"));
    let files = |_: &std::path::Path| -> qpair_block::Result<_> { unreachable!("no file") };
    let error = parse("nvme:x").open(&files).unwrap_err();
    assert_eq!(error.kind(), qpair_block::ErrorKind::Unsupported);
}

/// `auto` finds a drive that the kernel has lent by the address of its controller. The name of a
/// device that needs no word must not be taken from others.
#[test]
fn the_address_of_a_function_is_a_name_without_a_word() {
    for text in ["0000:3b:00.0", "3b:00.0", "0000:3b:00.0/ns1", "10000:01:1f.7/ns12"] {
        let spec = DeviceSpec::parse(text).unwrap();
        assert_eq!(spec.to_string(), text);
        assert!(matches!(&spec, DeviceSpec::File(path) if path.to_str() == Some(text)), "{text}");
        assert_eq!(DeviceSpec::parse(&format!("file:{text}")).unwrap(), spec);
        let stripe = format!("stripe:unit=4KiB:{text}+/dev/b");
        assert_eq!(DeviceSpec::parse(&stripe).unwrap().to_string(), stripe);
    }
    for text in ["0000:3b:00", "3b:00", "zz:00.0", "0000:3b:00.0/x", "1:2:3:4.0", "3b:00.0/ns"] {
        assert!(DeviceSpec::parse(text).is_err(), "{text}");
    }
}

#[test]
fn files_are_replaced_wherever_they_are_in_a_specifier() {
    let spec = DeviceSpec::parse("stripe:unit=4KiB:delay:read_us=1:/a+carve:name=x:/b").unwrap();
    let mut seen = Vec::new();
    let ram = DeviceSpec::parse("ram:size=1MiB").unwrap();
    let other = spec.try_map_files(&mut |path| {
        seen.push(path.display().to_string());
        Ok((path.to_str() == Some("/a")).then(|| ram.clone()))
    });
    assert_eq!(seen, ["/a", "/b"]);
    let text = other.unwrap().to_string();
    assert!(text.contains("ram:") && text.contains("/b") && !text.contains("/a"), "{text}");
}
