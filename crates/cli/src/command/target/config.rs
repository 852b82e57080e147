//! The configuration file: TOML, `[target]` and the calls that make what there is.

use std::path::PathBuf;

use qpair_serve::{ConfigCall, ConfigFault, MetricsAddress, SocketWay};
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::events::Levels;

/// The settings in `[target]`; `None` for settings that are not given.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Settings {
    pub(super) folder: Option<PathBuf>,
    pub(super) rpc: Option<PathBuf>,
    pub(super) metrics: Option<MetricsAddress>,
    pub(super) workers: Option<u16>,
    pub(super) cpus: Option<Vec<usize>>,
    pub(super) poll: Option<bool>,
    pub(super) sockets: Option<SocketWay>,
    pub(super) buffered: Option<bool>,
    pub(super) log: Option<Levels>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Config {
    pub(super) settings: Settings,
    pub(super) calls: Vec<ConfigCall>,
}

struct Reader<'t> {
    text: &'t str,
    faults: Vec<ConfigFault>,
}

impl Config {
    /// All that is wrong, if anything is.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<ConfigFault>> {
        let mut reader = Reader { text, faults: Vec::new() };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            reader.fault(error.span().map_or(0, |span| span.start), error.message().to_owned());
        }
        let mut config = Self::default();
        if reader.faults.is_empty() {
            for (name, value) in table.get_ref() {
                let at = name.span().start;
                match (name.get_ref().as_ref(), value.get_ref()) {
                    ("target", DeValue::Table(table)) => config.settings = reader.settings(table),
                    (method, DeValue::Array(entries)) => {
                        for entry in entries.iter() {
                            config.calls.push(reader.call(method, entry.span().start, entry));
                        }
                    }
                    (method, DeValue::Table(_)) => {
                        config.calls.push(reader.call(method, at, value))
                    }
                    (name, _) => {
                        reader.fault(at, format!("{name} is not a table: write [[METHOD]]"))
                    }
                }
            }
            for call in &config.calls {
                if !call.params.is_object() {
                    let what = format!("{} takes parameters by name", call.method);
                    reader.faults.push(ConfigFault { line: Some(call.line), what });
                }
            }
        }
        if reader.faults.is_empty() {
            config.calls.sort_by_key(|call| call.line);
            return Ok(config);
        }
        reader.faults.sort_by_key(|fault| fault.line);
        Err(reader.faults)
    }
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }

    fn fault(&mut self, at: usize, what: String) {
        let line = Some(self.line(at));
        self.faults.push(ConfigFault { line, what });
    }

    fn settings(&mut self, table: &DeTable<'_>) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in table {
            let text = value.get_ref().as_str();
            let flag = value.get_ref().as_bool();
            let path = text.map(PathBuf::from);
            let name = name.get_ref().as_ref();
            let known = match name {
                "folder" => put(&mut settings.folder, path),
                "rpc" => put(&mut settings.rpc, path),
                "metrics" => put(&mut settings.metrics, text.and_then(|text| text.parse().ok())),
                "workers" => {
                    let count =
                        value.get_ref().as_integer().and_then(|it| it.as_str().parse().ok());
                    put(&mut settings.workers, count.filter(|count| (1..=256).contains(count)))
                }
                "cpus" => {
                    let all = value.get_ref().as_array().into_iter().flat_map(|all| all.iter());
                    let number = |one: &Spanned<DeValue<'_>>| {
                        one.get_ref().as_integer()?.as_str().parse().ok()
                    };
                    let cpus = all.map(number).collect::<Option<Vec<usize>>>();
                    put(&mut settings.cpus, cpus.filter(|cpus| !cpus.is_empty()))
                }
                "poll" => put(&mut settings.poll, flag),
                "sockets" => put(&mut settings.sockets, text.and_then(|text| text.parse().ok())),
                "buffered" => put(&mut settings.buffered, flag),
                "log" => put(&mut settings.log, text.and_then(|text| Levels::parse(text).ok())),
                _ => {
                    let what = format!(
                        "[target] has no {name}: it has folder, rpc, metrics, workers, cpus, poll, sockets, buffered and log"
                    );
                    self.fault(value.span().start, what);
                    continue;
                }
            };
            if !known {
                let what = format!("{name} cannot be {}", &self.text[value.span()]);
                self.fault(value.span().start, what);
            }
        }
        settings
    }

    fn json(&mut self, value: &Spanned<DeValue<'_>>) -> Value {
        match value.get_ref() {
            DeValue::String(text) => Value::from(text.as_ref()),
            DeValue::Boolean(flag) => Value::from(*flag),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::from(number),
                    Err(_) => self.no_value(value, "number"),
                }
            }
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) => Value::from(number),
                Err(_) => self.no_value(value, "number"),
            },
            DeValue::Datetime(_) => self.no_value(value, "parameter"),
            DeValue::Array(all) => all.iter().map(|one| self.json(one)).collect(),
            DeValue::Table(table) => {
                let pairs = table.iter();
                let pairs = pairs.map(|(name, one)| (name.get_ref().to_string(), self.json(one)));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    fn call(&mut self, method: &str, at: usize, params: &Spanned<DeValue<'_>>) -> ConfigCall {
        let (line, params) = (self.line(at), self.json(params));
        ConfigCall { line, method: method.to_owned(), params }
    }

    fn no_value(&mut self, value: &Spanned<DeValue<'_>>, what: &str) -> Value {
        self.fault(value.span().start, format!("{} is not a {what}", &self.text[value.span()]));
        Value::Null
    }
}

fn put<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    *place = value;
    place.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::toml::to_toml;
    use serde_json::json;

    const TEXT: &str = r#"
[target]
folder = "/run/q"   # where sockets are
workers = 2
cpus = [1, 0]
log = "info,qpair_nvme=debug"

[[vhost_create_blk_controller]]
ctrlr = "b.sock"
dev_name = "M"

[[bdev_malloc_create]]
name = "M"
num_blocks = 0x800
block_size = 512
"#;

    #[test]
    fn calls_stand_in_the_order_of_the_file() {
        let config = Config::parse(TEXT).unwrap();
        assert_eq!(config.settings.folder, Some("/run/q".into()));
        assert_eq!(config.settings.workers, Some(2));
        assert_eq!(config.settings.log, Levels::parse("info,qpair_nvme=debug").ok());
        assert_eq!(config.settings.cpus, Some(vec![1, 0]));
        let found: Vec<_> = config.calls.iter().map(|it| (it.line, it.method.as_str())).collect();
        assert_eq!(found, [(8, "vhost_create_blk_controller"), (12, "bdev_malloc_create")]);
        let params = json!({"name": "M", "num_blocks": 2048, "block_size": 512});
        assert_eq!(config.calls[1].params, params);
        let calls = config.calls.iter().map(|it| (it.method.as_str(), &it.params));
        let again = Config::parse(&to_toml(calls)).unwrap();
        let params = |config: &Config| {
            config.calls.iter().map(|it| (it.method.clone(), it.params.clone())).collect::<Vec<_>>()
        };
        assert_eq!(params(&again), params(&config));
    }

    #[test]
    fn values_of_all_kinds_are_read_as_they_are_written() {
        let params = json!({
            "text": "a \"quoted\" \\ line\n\u{1}\u{7f}ä", "flag": true, "number": -3, "part": 1.5,
            "list": ["a", "b"], "map": {"bdev_name": "M", "nsid": 1},
        });
        let text = to_toml([("some_method", &params)].into_iter());
        assert_eq!(Config::parse(&text).unwrap().calls[0].params, params);
    }

    #[test]
    fn each_wrong_line_is_named() {
        let lines = |text: &str| -> Vec<usize> {
            let faults = Config::parse(text).unwrap_err();
            faults.iter().map(|fault| fault.line.unwrap()).collect()
        };
        assert_eq!(
            lines("[target]\nworkers = 0\ncpus = 1\nlog = \"loud\"\nsize = 3\n"),
            [2, 3, 4, 5]
        );
        assert_eq!(lines("a = 1\n\n[[m]]\nwhen = 2020-01-01\n"), [1, 4]);
        let wrong = lines("[target]\nfolder = \n[[m]]\nx = [1,\ny = \"\n");
        assert!(wrong.contains(&2) && wrong.len() > 1, "{wrong:?}");
    }
}
