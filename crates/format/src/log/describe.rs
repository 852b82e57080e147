//! Describes records in words, for the listing of a log.

use std::fmt::Write;

use super::record::{Operation, Record};
use crate::large::Descriptor;
use crate::shown::shown;

/// Describes a record: a line with its timestamp, and one for each operation.
pub fn describe(record: &Record<'_>) -> String {
    let mut text = format!(
        "timestamp {}{}: {} {}, {} bytes\n",
        record.timestamp,
        if record.continues { ", a part" } else { "" },
        record.operation_count,
        if record.operation_count == 1 { "operation" } else { "operations" },
        record.bytes()
    );
    for operation in record.operations() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}", describe_operation(&operation, None));
    }
    text
}

pub fn describe_operation(operation: &Operation<'_>, table: Option<&str>) -> String {
    let of = |tree: &u32| match table {
        Some(name) => format!("table {}", shown(name.as_bytes())),
        None => format!("tree {tree}"),
    };
    match operation {
        Operation::Put { tree, key, value } => {
            format!("put    {} {} = {}", of(tree), shown(key), shown(value))
        }
        Operation::PutLarge { tree, key, descriptor } => {
            format!("put    {} {} = {}", of(tree), shown(key), large(descriptor))
        }
        Operation::Delete { tree, key } => format!("delete {} {}", of(tree), shown(key)),
        Operation::CreateTable { tree, name } => {
            format!("create tree {tree} as table {}", shown(name.as_bytes()))
        }
        Operation::DropTable { tree } => format!("drop   {}", of(tree)),
        Operation::RenameTable { tree, name } => {
            format!("rename {} to {}", of(tree), shown(name.as_bytes()))
        }
    }
}

fn large(descriptor: &[u8; Descriptor::BYTES]) -> String {
    let page = Descriptor::first_page(descriptor).unwrap_or_default();
    let len = super::get_u32(descriptor, 16).unwrap_or_default();
    let pages = super::get_u32(descriptor, 20).unwrap_or_default();
    format!("{len} bytes in {pages} pages from page {page}")
}

#[cfg(test)]
mod tests {
    use super::super::record::RecordBuilder;
    use super::*;

    #[test]
    fn text_is_shown_as_text_and_the_rest_in_hexadecimal() {
        let mut bytes = Vec::new();
        let mut record = RecordBuilder::new(&mut bytes, 9);
        record.push(Operation::Put { tree: 3, key: b"a \"key\"", value: &[0, 255] });
        record.push(Operation::Put { tree: 3, key: &[b'x'; 60], value: &[1; 60] });
        record.push(Operation::PutLarge { tree: 1, key: b"", descriptor: [1; 24] });
        record.push(Operation::Delete { tree: 3, key: "käse".as_bytes() });
        record.push(Operation::CreateTable { tree: 4, name: "orders" });
        record.push(Operation::DropTable { tree: 5 });
        record.push(Operation::RenameTable { tree: 4, name: "old orders" });
        record.finish().unwrap();
        let text = describe(&Record::decode(&bytes).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("timestamp 9: 7 operations, "), "{text}");
        assert_eq!(lines[1], "  put    tree 3 \"a \\\"key\\\"\" = 0x00ff");
        let (x, ones) = ("x".repeat(48), "01".repeat(24));
        assert_eq!(lines[2], format!("  put    tree 3 \"{x}…\" (60 bytes) = 0x{ones}… (60 bytes)"));
        assert!(lines[3].contains("bytes in 16843009 pages from page 72340172838076673"));
        assert_eq!(lines[4], "  delete tree 3 \"käse\"");
        assert_eq!(lines[5], "  create tree 4 as table \"orders\"");
        assert_eq!(lines[6], "  drop   tree 5");
        assert_eq!(lines[7], "  rename tree 4 to \"old orders\"");
    }
}
