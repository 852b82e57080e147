//! The documentation of the methods, made from their table: a JSON Schema, and a page in Markdown.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::schema::Kind::{self, Choice, Fields, Flag, Nothing, Number, Text, Texts};
use super::schema::{Param, SCHEMAS, Schema};

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Text => "string",
            Number | Choice => "number",
            Flag => "boolean",
            Texts => "list of strings",
            Fields(_) => "object",
            Nothing => "nothing",
        }
    }

    fn in_json(self) -> Value {
        match self {
            Text => json!({"type": "string"}),
            Number => json!({"type": "integer", "minimum": 0}),
            Choice => json!({"type": "integer", "minimum": -1}),
            Flag => json!({"type": "boolean"}),
            Texts => json!({"type": "array", "items": {"type": "string"}}),
            Fields(params) => object(params),
            Nothing => json!({"enum": [false, 0, null]}),
        }
    }
}

/// Returns a JSON Schema of the parameters of each method, by name.
pub(super) fn in_json() -> Value {
    let one = |schema: &Schema| {
        let params = object(schema.params);
        let value = json!({"description": schema.about, "params": params, "result": schema.result});
        (schema.method.to_owned(), value)
    };
    Value::Object(SCHEMAS.iter().map(one).collect())
}

/// Returns the JSON Schema of an object of parameters.
fn object(params: &[Param]) -> Value {
    let properties = params.iter().map(|param| {
        let mut value = param.kind.in_json();
        if !param.about.is_empty() {
            value["description"] = json!(param.about);
        }
        (param.name.to_owned(), value)
    });
    let needed = params.iter().filter(|param| param.is_needed);
    json!({
        "type": "object",
        "properties": properties.collect::<Map<_, _>>(),
        "required": needed.map(|param| param.name).collect::<Vec<_>>(),
        "additionalProperties": false,
    })
}

/// Returns the reference page of all methods, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut page = "# Methods of the target\n\n\
        What `qpair target --rpc PATH` answers: JSON-RPC 2.0 with the names, parameters and errors of SPDK's. Call them with `qpair rpc METHOD name=value`, or with SPDK's \
        client. This page is made from the table that calls are checked against (`crates/serve/src/rpc/schema.rs`); `rpc_get_schema` gives the same as JSON Schema.\n\n\
        Parameters in **bold** are needed. An answer is an error for a parameter that is not listed, and for one of the last line of a method if it asks for \
        anything but `false` or 0.\n"
        .to_owned();
    for Schema { method, about, params, result } in SCHEMAS {
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## {method}\n\n{about} Answers with {result}.\n");
        let (nothing, params): (Vec<_>, Vec<_>) =
            params.iter().partition(|param| param.kind == Nothing);
        if !params.is_empty() {
            page.push_str("\n| parameter | is a | |\n|---|---|---|\n");
        }
        let mut names: Vec<String> =
            nothing.iter().map(|param| format!("`{}`", param.name)).collect();
        let mut row = |within: &str, param: &Param| {
            let Param { name, kind, is_needed, about } = param;
            let mark = if *is_needed { "**" } else { "" };
            let _ = writeln!(page, "| {mark}`{within}{name}`{mark} | {} | {about} |", kind.word());
        };
        for param in params {
            row("", param);
            let Fields(fields) = param.kind else { continue };
            let within = format!("{}.", param.name);
            for field in fields {
                match field.kind {
                    Nothing => names.push(format!("`{within}{}`", field.name)),
                    _ => row(&within, field),
                }
            }
        }
        if !names.is_empty() {
            let _ = writeln!(page, "\nNot supported: {}.", names.join(", "));
        }
    }
    page
}
