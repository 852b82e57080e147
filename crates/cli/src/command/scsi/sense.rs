//! `qpair scsi sense`.

use clap::Args;
use qpair_scsi_wire::Sense;

use crate::failure::{Exit, Failure, Result};
use crate::show::output::say;

/// Explain sense data from a log, in the fixed or the descriptor format
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair scsi sense 72 05 24 00 00 00 00 08 02 06 00 00 c0 00 01 00
  qpair scsi sense 700003000000000a0000000011000000")]
pub(crate) struct SenseData {
    /// Bytes in hexadecimal, with or without blanks, commas and 0x
    #[arg(value_name = "HEX", required = true)]
    bytes: Vec<String>,
}

impl SenseData {
    pub(crate) fn run(self) -> Result<Exit> {
        let text = self.bytes.join(" ");
        let bytes = parse(&text).ok_or_else(|| {
            Failure::usage(format!("\"{text}\" is not made of bytes in hexadecimal"))
                .hint("write two digits for each byte, as in 72 05 24 00")
        })?;
        let sense = Sense::decode(&bytes).ok_or_else(|| {
            Failure::usage(format!("\"{text}\" is not sense data"))
                .hint("sense data begins with 70, 71, 72 or 73 (f0, f1 in the fixed form also)")
        })?;
        say(sense.to_string())?;
        Ok(Exit::Done)
    }
}

fn parse(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for word in text.split([' ', ',', ':']).filter(|word| !word.is_empty()) {
        let digits = word.strip_prefix("0x").unwrap_or(word).as_bytes();
        // A lone digit is a byte, as some logs write it.
        let chunks = if digits.len() == 1 { digits.chunks(1) } else { digits.chunks(2) };
        for chunk in chunks {
            let text = std::str::from_utf8(chunk).ok()?;
            let is_whole = digits.len() == 1 || chunk.len() == 2;
            bytes.push(u8::from_str_radix(text, 16).ok().filter(|_| is_whole)?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_as_people_paste_them() {
        assert_eq!(parse("72 05,0x24:00"), Some(vec![0x72, 5, 0x24, 0]));
        assert_eq!(parse("7205 24 0"), Some(vec![0x72, 5, 0x24, 0]));
        assert_eq!(parse("720"), None);
        assert_eq!(parse("zz"), None);
    }
}
