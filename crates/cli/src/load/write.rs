//! Formats a record as a line of output, in each of the formats that `load` reads.
//!
//! The reader of the same format turns a written line back into the same bytes.

use super::csv_reader::write_fields;
use super::format::Format;
use super::lines::LINE_LEN_MAX;
use crate::show::text::{escape_into, push_hex};

/// Writes a record without an end of line. Without a value, only the key is written.
pub(crate) fn write_record(format: Format, line: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    match format {
        Format::Tsv => {
            escape_into(line, key);
            if let Some(value) = value {
                line.push(b'\t');
                escape_into(line, value);
            }
        }
        Format::Csv => write_fields(line, std::iter::once(key).chain(value), b','),
        Format::Json => {
            line.push(b'{');
            write_field(line, "key", key);
            if let Some(value) = value {
                line.push(b',');
                write_field(line, "value", value);
            }
            line.push(b'}');
        }
    }
}

/// Writes a field of a JSON object: as `name` if the bytes are UTF-8, as `name_hex` if not, or if
/// so many bytes need an escape that the line could not be read back.
fn write_field(line: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let start = line.len();
    if let Ok(text) = std::str::from_utf8(bytes) {
        line.extend_from_slice(format!("\"{name}\":").as_bytes());
        let is_written = serde_json::to_writer(&mut *line, text).is_ok();
        if is_written && ((line.len() - start) as u64) < LINE_LEN_MAX / 2 {
            return;
        }
        line.truncate(start);
    }
    line.extend_from_slice(format!("\"{name}_hex\":\"").as_bytes());
    push_hex(line, bytes, "");
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::{Columns, Input, Layout, Record};

    type Records = Vec<(Vec<u8>, Vec<u8>)>;

    /// Writes records in a format, and reads them back.
    fn read_back(format: Format, records: &Records) -> Records {
        let mut text = Vec::new();
        if format == Format::Csv {
            text.extend_from_slice(b"key,value\n");
        }
        for (key, value) in records {
            write_record(format, &mut text, key, Some(value));
            text.push(b'\n');
        }
        let names = if format == Format::Tsv { ["1", "2"] } else { ["key", "value"] };
        let columns = Columns { key: Some(names[0].to_owned()), values: vec![names[1].to_owned()] };
        let layout = Layout { format, columns, header: None, delimiter: None, raw: false };
        let mut reader = layout.reader(Input::of_bytes(text)).unwrap();
        reader.begin().unwrap();
        let (mut found, mut record) = (Vec::new(), Record::default());
        while reader.read(&mut record).unwrap().is_some() {
            found.push((std::mem::take(&mut record.key), std::mem::take(&mut record.value)));
        }
        found
    }

    /// Generates bytes, including those that formats treat specially.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let odd = prop::sample::select(vec![
            &b"\t"[..],
            b"\n",
            b"\r",
            b"\r\n",
            b"\\",
            b"\"",
            b",",
            b"\0",
            b"\xef\xbb\xbf",
            b"\xff",
            b"\\t",
            b"\\x0",
            b"{",
            b"\xc3",
            b"\xc3\xbc",
            b" ",
            b"\x7f",
            b"\x1b",
            b"\xc2\x85",
            b"a",
        ]);
        let any = any::<u8>().prop_map(|byte| vec![byte]);
        let part = prop_oneof![odd.prop_map(<[u8]>::to_vec), any];
        prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    fn records() -> impl Strategy<Value = Records> {
        prop::collection::vec((bytes(), bytes()), 0..6)
    }

    proptest! {
        #[test]
        fn tab_separated_values_are_read_back(records in records()) {
            prop_assert_eq!(read_back(Format::Tsv, &records), records);
        }

        #[test]
        fn comma_separated_values_are_read_back(records in records()) {
            prop_assert_eq!(read_back(Format::Csv, &records), records);
        }

        #[test]
        fn json_lines_are_read_back(records in records()) {
            prop_assert_eq!(read_back(Format::Json, &records), records);
        }
    }
}
