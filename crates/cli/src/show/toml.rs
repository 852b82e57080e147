//! Calls of a target as its configuration file has them.

use serde_json::Value;

pub(crate) fn to_toml<'c>(calls: impl Iterator<Item = (&'c str, &'c Value)>) -> String {
    let mut text = String::new();
    for (method, params) in calls {
        text += &format!("{}[[{method}]]\n", if text.is_empty() { "" } else { "\n" });
        for (name, value) in params.as_object().into_iter().flatten() {
            text += &format!("{name} = {}\n", value_text(value));
        }
    }
    text
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Array(all) => {
            format!("[{}]", all.iter().map(value_text).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let pairs = map.iter().map(|(name, one)| format!("{name} = {}", value_text(one)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        // What JSON leaves as it is and TOML does not.
        Value::String(_) => value.to_string().replace('\u{7f}', "\\u007f"),
        other => other.to_string(),
    }
}
