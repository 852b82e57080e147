//! `qpair rpc`: calls a method of a target.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::failure::{Exit, Failure, Result};
use crate::show::output::say;
use crate::show::toml::to_toml;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Call a method of a target by JSON-RPC, and print its result
#[derive(Args, Debug)]
#[command(after_help = "\
A value that is valid JSON is sent as JSON (512, true, [\"M0\",\"M1\"]), any other as a string. Methods, parameters \
and errors are those of SPDK; rpc_get_methods lists the supported methods. The exit code is 1 if the target answers \
with an error.

Examples:
  qpair rpc rpc_get_methods
  qpair rpc bdev_malloc_create name=M0 num_blocks=131072 block_size=512
  qpair rpc bdev_raid_create name=R raid_level=raid0 strip_size_kb=64 'base_bdevs=[\"M0\",\"M1\"]'
  qpair rpc vhost_create_blk_controller ctrlr=r.sock dev_name=R
  qpair rpc save_config > saved.json               as spdk-rpc writes it; with --toml for qpair target --config")]
pub(crate) struct Rpc {
    /// The method
    method: String,

    /// Parameters of the method
    #[arg(value_name = "NAME=VALUE", value_parser = parse_parameter)]
    parameters: Vec<(String, Value)>,

    /// Print the result of save_config as TOML
    #[arg(long)]
    toml: bool,

    /// Socket at which the target listens
    #[arg(long, value_name = "PATH", default_value = "/run/qpair/rpc.sock")]
    socket: PathBuf,
}

fn parse_parameter(text: &str) -> std::result::Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    if name.is_empty() {
        return Err("write NAME=VALUE".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

impl Rpc {
    pub(crate) fn run(self) -> Result<Exit> {
        let result = match self.method.as_str() {
            "save_config" => {
                let saved = self.saved()?;
                if self.toml {
                    let subsystems = saved["subsystems"].as_array().into_iter().flatten();
                    let calls =
                        subsystems.flat_map(|it| it["config"].as_array().into_iter().flatten());
                    let calls =
                        calls.map(|it| (it["method"].as_str().unwrap_or_default(), &it["params"]));
                    return say(to_toml(calls).trim_end()).map(|()| Exit::Done);
                }
                saved
            }
            method => {
                let given = self.parameters.iter().cloned().collect::<Map<_, _>>();
                self.call(method, given)?
            }
        };
        say(serde_json::to_string_pretty(&result).unwrap_or_default())?;
        Ok(Exit::Done)
    }

    /// Collects a configuration from several methods, as SPDK's client does, since no method
    /// returns all of it.
    fn saved(&self) -> Result<Value> {
        let names = self.call("framework_get_subsystems", Map::new())?;
        let config = |it: &Value| {
            let name = &it["subsystem"];
            let given = Map::from_iter([("name".to_owned(), name.clone())]);
            Ok(json!({"subsystem": name, "config": self.call("framework_get_config", given)?}))
        };
        let all = names.as_array().into_iter().flatten().map(config).collect::<Result<Vec<_>>>()?;
        Ok(json!({ "subsystems": all }))
    }

    fn call(&self, method: &str, given: Map<String, Value>) -> Result<Value> {
        let shown = self.socket.display();
        let failed = |error: std::io::Error| Failure::io(&error, format_args!("{shown}"));
        let mut stream = UnixStream::connect(&self.socket).map_err(|error| {
            failed(error)
                .hint("start a target with --rpc PATH, and give the same path with --socket")
        })?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        let mut request = json!({"jsonrpc": "2.0", "id": 1, "method": method});
        if !given.is_empty() {
            request["params"] = Value::Object(given);
        }
        stream.write_all(request.to_string().as_bytes()).map_err(failed)?;
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        let answer: Value = loop {
            let count = stream.read(&mut part).map_err(failed)?;
            bytes.extend_from_slice(&part[..count]);
            match serde_json::from_slice(&bytes) {
                Ok(answer) => break answer,
                Err(error) if error.is_eof() && count > 0 => {}
                Err(_) => {
                    return Err(Failure::new(
                        Exit::Failed,
                        format!("{shown} does not answer in JSON-RPC"),
                    ));
                }
            }
        };
        if let Some(error) = answer.get("error") {
            let message = error.get("message").and_then(Value::as_str).unwrap_or("an error");
            let code = error.get("code").and_then(Value::as_i64).unwrap_or(0);
            return Err(Failure::new(Exit::Negative, format!("{method}: {message} ({code})")));
        }
        Ok(answer.get("result").cloned().unwrap_or(Value::Null))
    }
}
