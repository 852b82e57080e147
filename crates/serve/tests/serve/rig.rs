//! A target with JSON-RPC and a client that makes calls, for several tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

use qpair_block::{BlockDevice, Error, ErrorKind, RamDevice, RamOptions};
use qpair_serve::{
    Attach, Manager, RpcServer, ScsiHost, ScsiNews, ScsiPlace, Target, TargetOptions,
};
use serde_json::{Value, json};

type Units = BTreeMap<ScsiPlace, Arc<dyn BlockDevice>>;

/// A SCSI host whose units a test chooses.
#[derive(Default)]
pub(crate) struct FakeHost(Mutex<(Units, ScsiNews)>);

impl FakeHost {
    pub(crate) fn plug(&self, target: u32, lun: u16) {
        let (units, news) = &mut *self.0.lock().unwrap();
        units.insert(ScsiPlace { target, lun }, ram());
        news.is_news = true;
    }

    pub(crate) fn pull(&self, target: u32) {
        let (units, news) = &mut *self.0.lock().unwrap();
        units.retain(|place, _| place.target != target);
        news.is_news = true;
        news.gone.push(target);
    }
}

impl ScsiHost for FakeHost {
    fn about(&self) -> String {
        "fake".into()
    }

    fn units(&self) -> Result<Vec<(ScsiPlace, Option<String>)>, Error> {
        let (units, _) = &*self.0.lock().unwrap();
        // Target 9 is a tape.
        let why = |place: &ScsiPlace| (place.target == 9).then(|| "it is a tape".to_owned());
        Ok(units.keys().map(|place| (*place, why(place))).collect())
    }

    fn open(&self, place: ScsiPlace) -> Result<Arc<dyn BlockDevice>, Error> {
        Ok(self.0.lock().unwrap().0[&place].clone())
    }

    fn news(&self) -> ScsiNews {
        std::mem::take(&mut self.0.lock().unwrap().1)
    }
}

/// A target, and a device called "base" that outlives it.
pub(crate) struct Rig {
    socket: UnixStream,
    // Dropped before the manager's folder.
    _server: RpcServer,
    pub(crate) target: Arc<Target>,
    pub(crate) manager: Arc<Manager>,
    /// The host at `soft`.
    pub(crate) host: Arc<FakeHost>,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) fn ram() -> Arc<dyn BlockDevice> {
    let options = RamOptions { size_bytes: 32 << 20, growable: false, ..RamOptions::default() };
    Arc::new(RamDevice::new(options).unwrap())
}

impl Rig {
    /// Starts a rig. Every file that a call opens is `device`, whatever its path is.
    pub(crate) fn start(device: &Arc<dyn BlockDevice>) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let target = Target::new(TargetOptions::default()).unwrap();
        let file = device.clone();
        let open = Box::new(move |_: &Path, _: &str, _| Ok(file.clone()));
        let target = Arc::new(target);
        let manager = Manager::new(target.clone(), open, folder.path().to_owned(), "1.2.3");
        let host = Arc::new(FakeHost::default());
        let fake = host.clone();
        manager.attach_with(Attach {
            nvme: Box::new(|address| match address {
                "0000:01:00.0" => Ok(vec![(1, ram()), (3, ram())]),
                _ => Err(Error::new(ErrorKind::NotFound, address)),
            }),
            scsi: Box::new(move |address| match address {
                "soft" | "0000:03:00.0" => Ok(fake.clone()),
                _ => Err(Error::new(ErrorKind::NotFound, address)),
            }),
            vhost_user: Box::new(|socket| match socket {
                "/run/other.sock" => Ok(ram()),
                _ => Err(Error::new(ErrorKind::NotFound, socket)),
            }),
        });
        let server = RpcServer::start(&folder.path().join("rpc.sock"), manager.clone()).unwrap();
        let socket = UnixStream::connect(server.path()).unwrap();
        let mut rig = Self { socket, _server: server, target, manager, host, folder };
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

    /// Makes a call that must fail with this code and change nothing.
    #[track_caller]
    pub(crate) fn refused(&mut self, code: i64, method: &str, params: Value) {
        let state = |rig: &mut Self| {
            [
                "bdev_get_bdevs",
                "bdev_scsi_get_devices",
                "bdev_nvme_get_controllers",
                "bdev_scsi_get_controllers",
                "vhost_get_controllers",
                "nvmf_get_subsystems",
            ]
            .map(|method| {
                let mut told = rig.ok(method, Value::Null);
                // A socket that was closed and opened again is last in the list.
                if let ("vhost_get_controllers", Some(all)) = (method, told.as_array_mut()) {
                    all.sort_by_key(|controller| controller["ctrlr"].to_string());
                }
                told
            })
        };
        let before = state(self);
        let answer = self.call(method, &params);
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
        assert_eq!(before, state(self), "{method} {params}");
    }
}
