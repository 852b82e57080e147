//! What tests of calls share: a target with JSON-RPC, and a client that calls.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use qpair_block::{BlockDevice, Error, ErrorKind, RamDevice, RamOptions};
use qpair_target::{Manager, RpcServer, Target, TargetOptions};
use serde_json::{Value, json};

/// A target, and a device called "base" that outlives it.
pub(crate) struct Rig {
    socket: UnixStream,
    // Dropped before the manager's folder.
    _server: RpcServer,
    pub(crate) target: Arc<Target>,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) fn ram() -> Arc<dyn BlockDevice> {
    let options = RamOptions { size_bytes: 32 << 20, growable: false, ..RamOptions::default() };
    Arc::new(RamDevice::new(options).unwrap())
}

impl Rig {
    /// Files are `device`, whatever they are called.
    pub(crate) fn start(device: &Arc<dyn BlockDevice>) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let target = Target::new(TargetOptions::default()).unwrap();
        let file = device.clone();
        let open = Box::new(move |_: &Path, _: &str, _| Ok(file.clone()));
        let target = Arc::new(target);
        let manager = Manager::new(target.clone(), open, folder.path().to_owned(), "1.2.3");
        manager.attach_with(Box::new(|address| match address {
            "0000:01:00.0" => Ok(vec![(1, ram()), (3, ram())]),
            _ => Err(Error::new(ErrorKind::NotFound, address)),
        }));
        let server = RpcServer::start(&folder.path().join("rpc.sock"), manager).unwrap();
        let socket = UnixStream::connect(server.path()).unwrap();
        let mut rig = Self { socket, _server: server, target, folder };
        rig.ok("bdev_aio_create", json!({"name": "base", "filename": "x"}));
        rig
    }

    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.socket.write_all(request.to_string().as_bytes()).unwrap();
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        while !bytes.ends_with(b"\n") {
            let count = self.socket.read(&mut part).unwrap();
            assert!(count > 0, "{method}: the target hung up");
            bytes.extend_from_slice(&part[..count]);
        }
        serde_json::from_slice(&bytes).unwrap()
    }

    #[track_caller]
    pub(crate) fn ok(&mut self, method: &str, params: Value) -> Value {
        let answer = self.call(method, &params);
        assert!(answer.get("error").is_none(), "{method} {params}: {answer}");
        answer["result"].clone()
    }

    /// A call that fails with this code, and changes nothing.
    #[track_caller]
    pub(crate) fn refused(&mut self, code: i64, method: &str, params: Value) {
        let state = |rig: &mut Self| {
            [
                "bdev_get_bdevs",
                "bdev_scsi_get_devices",
                "bdev_nvme_get_controllers",
                "nvmf_get_subsystems",
            ]
            .map(|method| rig.ok(method, Value::Null))
        };
        let before = state(self);
        let answer = self.call(method, &params);
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
        assert_eq!(before, state(self), "{method} {params}");
    }
}
