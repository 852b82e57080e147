//! The table of answers to commands and what to do about each: see docs/design/scsi.md.

use qpair_block::IoError;
use qpair_scsi_wire::sense::{Code, Key};
use qpair_scsi_wire::{
    BUSY, CHECK_CONDITION, CONDITION_MET, GOOD, RESERVATION_CONFLICT, Sense, TASK_ABORTED,
    TASK_SET_FULL,
};

use crate::host::Outcome;

/// The errno for a unit that another initiator has reserved: EACCES.
const RESERVED: i32 = 13;
/// The pause in milliseconds before a command to a unit that is becoming ready is sent again.
const BECOMING_READY_MS: u32 = 100;
/// The pause in milliseconds before a command to a busy unit is sent again.
const BUSY_MS: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// Send the command again after this many milliseconds; counts as a retry.
    Again(u32),
    /// Send the command again, once.
    Once,
    /// Send the command again after this many milliseconds, because the unit is busy.
    Busy(u32),
    Fail(IoError),
}

pub(crate) fn of_status(status: u8, sense: Option<&Sense>) -> Verdict {
    match status {
        GOOD | CONDITION_MET => Verdict::Good,
        CHECK_CONDITION => sense.map_or(Verdict::Fail(IoError::IO), of_sense),
        BUSY => Verdict::Busy(BUSY_MS),
        TASK_SET_FULL => Verdict::Busy(1),
        RESERVATION_CONFLICT => Verdict::Fail(IoError::from_errno(RESERVED)),
        TASK_ABORTED => Verdict::Again(0),
        _ => Verdict::Fail(IoError::IO),
    }
}

fn of_sense(sense: &Sense) -> Verdict {
    // A deferred error belongs to an earlier command. This command was not executed, and can be
    // sent again.
    if sense.is_deferred {
        return Verdict::Again(0);
    }
    match (sense.key, sense.code) {
        (Key::NoSense | Key::RecoveredError | Key::Completed, _) => Verdict::Good,
        (Key::NotReady, Code::BECOMING_READY) => Verdict::Again(BECOMING_READY_MS),
        (Key::UnitAttention, _) => Verdict::Again(0),
        (Key::HardwareError, _) => Verdict::Once,
        // Protection information that does not match now will not match later either.
        (Key::AbortedCommand, Code(0x10, _)) => Verdict::Fail(IoError::IO),
        (Key::AbortedCommand, _) => Verdict::Again(0),
        (Key::DataProtect, Code::SPACE_EXHAUSTED) => Verdict::Fail(IoError::NO_SPACE),
        (Key::DataProtect, _) => Verdict::Fail(IoError::READ_ONLY),
        (Key::IllegalRequest, Code::BLOCK_OUT_OF_RANGE) => Verdict::Fail(IoError::INVALID),
        (Key::IllegalRequest, Code::NO_SUCH_UNIT) => Verdict::Fail(IoError::GONE),
        (
            Key::IllegalRequest,
            Code::INVALID_OPCODE | Code::INVALID_FIELD_IN_CDB | Code::INVALID_FIELD_IN_LIST,
        ) => Verdict::Fail(IoError::UNSUPPORTED),
        _ => Verdict::Fail(IoError::IO),
    }
}

/// Whether sense data reports that the unit may have been without power, and its volatile cache
/// with it.
pub(crate) fn may_have_lost_cache(sense: &Sense) -> bool {
    sense.key == Key::UnitAttention
        && matches!(sense.code, Code::POWER_ON_OR_RESET | Code::POWER_ON)
}

/// Whether it is unknown if the unit reported anything with a command.
pub(crate) fn is_unseen(outcome: Outcome, sense: Option<&Sense>) -> bool {
    match outcome {
        Outcome::Status(CHECK_CONDITION) => sense.is_none(),
        Outcome::Good | Outcome::Short(_) | Outcome::Status(_) | Outcome::Busy => false,
        Outcome::Terminated | Outcome::Reset | Outcome::Gone | Outcome::Failed => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let check = |key, code| of_status(CHECK_CONDITION, Some(&Sense::new(key, code)));
        assert_eq!(check(Key::RecoveredError, Code(0x17, 1)), Verdict::Good);
        assert_eq!(check(Key::NotReady, Code::BECOMING_READY), Verdict::Again(100));
        assert_eq!(check(Key::NotReady, Code::NEEDS_START), Verdict::Fail(IoError::IO));
        assert_eq!(check(Key::NotReady, Code::NO_MEDIUM), Verdict::Fail(IoError::IO));
        assert_eq!(check(Key::UnitAttention, Code::POWER_ON), Verdict::Again(0));
        assert_eq!(
            check(Key::MediumError, Code::UNRECOVERED_READ_ERROR),
            Verdict::Fail(IoError::IO)
        );
        assert_eq!(check(Key::HardwareError, Code::INTERNAL_FAILURE), Verdict::Once);
        assert_eq!(check(Key::AbortedCommand, Code(0x10, 3)), Verdict::Fail(IoError::IO));
        assert_eq!(check(Key::AbortedCommand, Code(0x4B, 0)), Verdict::Again(0));
        assert_eq!(
            check(Key::DataProtect, Code::SPACE_EXHAUSTED),
            Verdict::Fail(IoError::NO_SPACE)
        );
        assert_eq!(
            check(Key::DataProtect, Code::WRITE_PROTECTED),
            Verdict::Fail(IoError::READ_ONLY)
        );
        assert_eq!(
            check(Key::IllegalRequest, Code::INVALID_OPCODE),
            Verdict::Fail(IoError::UNSUPPORTED)
        );
        assert_eq!(check(Key::IllegalRequest, Code::NO_SUCH_UNIT), Verdict::Fail(IoError::GONE));
        assert_eq!(check(Key::Miscompare, Code::MISCOMPARE), Verdict::Fail(IoError::IO));
        assert_eq!(of_status(CHECK_CONDITION, None), Verdict::Fail(IoError::IO));
        assert_eq!(of_status(TASK_SET_FULL, None), Verdict::Busy(1));
        assert_eq!(of_status(0x30, None), Verdict::Fail(IoError::IO), "ACA active");
        assert!(may_have_lost_cache(&Sense::new(Key::UnitAttention, Code::POWER_ON)));
        assert!(!may_have_lost_cache(&Sense::new(Key::UnitAttention, Code::DEVICE_RESET)));
        let attention = Sense::new(Key::UnitAttention, Code::POWER_ON);
        let check = Outcome::Status(CHECK_CONDITION);
        assert!(is_unseen(check, None) && !is_unseen(check, Some(&attention)));
        assert!(is_unseen(Outcome::Reset, None) && !is_unseen(Outcome::Status(BUSY), None));
    }
}
