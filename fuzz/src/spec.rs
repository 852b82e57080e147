//! Names of devices: parsing never panics, and what is parsed is written so that it is read the
//! same.
#![no_main]

use qpair_block::DeviceSpec;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(spec) = DeviceSpec::parse(text) {
        let again = DeviceSpec::parse(&spec.to_string());
        assert_eq!(again.as_ref().ok(), Some(&spec), "{text:?} becomes {spec}");
    }
});
