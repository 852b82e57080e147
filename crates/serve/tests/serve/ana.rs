//! States of the ways to namespaces over TCP (ANA), by JSON-RPC, and our host on one way.

use std::sync::Arc;
use std::time::Duration;

use crate::rig::{Rig, ram};
use qpair_block::{
    Arena, BlockDevice, ChannelOptions, Completion, IoChannel, IoError, Request, WaitOptions,
};
use qpair_nvme_tcp::{NvmeTcpDevice, NvmeTcpOptions};
use serde_json::{Value, json};

const NQN: &str = "nqn.2026-11.invalid.example:ways";

fn way(port: &str) -> Value {
    json!({"trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": port})
}

/// Serves a device at two ports, and returns these.
fn serve(rig: &mut Rig) -> [String; 2] {
    rig.ok("nvmf_create_transport", json!({"trtype": "TCP"}));
    let subsystem = json!({"nqn": NQN, "allow_any_host": true, "ana_reporting": true});
    rig.ok("nvmf_create_subsystem", subsystem);
    rig.ok("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": {"bdev_name": "base"}}));
    let add = json!({"nqn": NQN, "listen_address": way("0")});
    rig.ok("nvmf_subsystem_add_listener", add);
    let add = json!({"nqn": NQN, "listen_address": way("0"), "ana_state": "inaccessible"});
    rig.ok("nvmf_subsystem_add_listener", add);
    let listeners = rig.ok("nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    [0, 1].map(|at| listeners[at]["address"]["trsvcid"].as_str().unwrap().to_owned())
}

fn set(rig: &mut Rig, port: &str, state: &str) {
    let params = json!({"nqn": NQN, "listen_address": way(port), "ana_state": state});
    assert_eq!(rig.ok("nvmf_subsystem_listener_set_ana_state", params), true);
}

fn states(rig: &mut Rig) -> Vec<String> {
    let listeners = rig.ok("nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    let state = |it: &Value| it["ana_states"][0]["ana_state"].as_str().unwrap().to_owned();
    listeners.as_array().unwrap().iter().map(state).collect()
}

struct Host {
    channel: Box<dyn IoChannel>,
    arena: Arc<Arena>,
    device: NvmeTcpDevice,
}

impl Host {
    fn open(port: &str, request_timeout: Duration) -> Self {
        let options = NvmeTcpOptions { request_timeout, ..NvmeTcpOptions::default() };
        let device = NvmeTcpDevice::open(&format!("127.0.0.1:{port}/{NQN}"), options).unwrap();
        let arena = Arena::new(65536, 2, device.info().arena_options()).unwrap();
        let options = ChannelOptions { depth: 2, arenas: vec![arena.clone()], wake: None };
        let channel = device.open_channel(&options).unwrap();
        Self { channel, arena, device }
    }

    fn submit(&mut self, is_write: bool, len: u32) {
        let buffer = self.arena.lease().unwrap();
        let request = match is_write {
            true => Request::write(0, len, buffer, 0),
            false => Request::read(0, len, buffer, 0),
        };
        self.channel.submit(request).unwrap();
        self.channel.kick();
    }

    fn ended(&mut self, want: u32, timeout: Option<Duration>) -> Vec<Result<(), IoError>> {
        let mut done: Vec<Completion> = Vec::new();
        self.channel.wait(&mut done, WaitOptions { want, linger: Duration::MAX, timeout });
        done.into_iter().map(|it| it.result).collect()
    }
}

#[test]
fn a_host_waits_for_its_way() {
    let mut rig = Rig::start(&ram());
    let [port, _] = serve(&mut rig);
    let mut host = Host::open(&port, Duration::from_secs(30));
    host.submit(true, 4096);
    assert_eq!(host.ended(1, None), [Ok(())]);
    for state in ["inaccessible", "persistent_loss", "change"] {
        set(&mut rig, &port, state);
        // One has its data in the capsule, and the other after R2T.
        host.submit(true, 4096);
        host.submit(true, 65536);
        assert_eq!(host.ended(1, Some(Duration::from_millis(250))), [], "{state}");
        set(&mut rig, &port, "optimized");
        assert_eq!(host.ended(2, None), [Ok(()), Ok(())], "{state}");
    }
    assert_eq!(host.device.resets(), 0);
}

#[test]
fn a_host_waits_no_longer_than_its_limit() {
    let mut rig = Rig::start(&ram());
    let [port, other] = serve(&mut rig);
    // The controller can be reached also where its namespaces cannot.
    let mut host = Host::open(&other, Duration::from_millis(300));
    host.submit(false, 4096);
    assert_eq!(host.ended(1, None), [Err(IoError::TIMED_OUT)]);
    set(&mut rig, &other, "non_optimized");
    host.submit(false, 4096);
    assert_eq!(host.ended(1, None), [Ok(())]);
    assert_eq!(host.device.resets(), 0, "the connection stays");
    assert_eq!(states(&mut rig), ["optimized", "non_optimized"]);
    let _ = port;
}

#[test]
fn states_are_saved_and_checked() {
    let mut rig = Rig::start(&ram());
    let [port, other] = serve(&mut rig);
    assert_eq!(states(&mut rig), ["optimized", "inaccessible"]);
    set(&mut rig, &port, "Change");
    let saved = rig.manager.save().to_string();
    assert!(saved.contains(r#""ana_state":"change""#), "{saved}");
    assert!(saved.contains(r#""ana_state":"inaccessible""#), "{saved}");
    assert!(saved.contains(r#""ana_reporting":true"#), "{saved}");
    let set = "nvmf_subsystem_listener_set_ana_state";
    let params = |port: &str, state: &str| json!({"nqn": NQN, "listen_address": way(port), "ana_state": state});
    rig.refused(-32602, set, params(&other, "better"));
    rig.refused(-32602, set, params("1", "optimized"));
    let mut group = params(&other, "optimized");
    group["anagrpid"] = json!(2);
    rig.refused(-32602, set, group);
    rig.ok("nvmf_create_subsystem", json!({"nqn": "nqn.2026-11.invalid.example:plain"}));
    let add = json!({
        "nqn": "nqn.2026-11.invalid.example:plain", "listen_address": way(&port),
        "ana_state": "optimized",
    });
    rig.refused(-32602, "nvmf_subsystem_add_listener", add);
}
