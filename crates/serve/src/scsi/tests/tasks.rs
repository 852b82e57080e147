//! Tasks.

use super::*;

/// A task ends the commands that it concerns in all queues, and is answered afterwards. It ends no
/// other command.
#[test]
fn tasks_end_commands() {
    let (gate, other) = (Gate::new(), Gate::new());
    let mut host = Host::new(&[gate.clone(), other.clone()]);
    let mut queues = [0, 1].map(|which| host.requests[which].open(&host.controller));
    let mut control = host.control.open(&host.controller);
    let turn = |control: &mut Box<dyn Unit>, queues: &mut [Box<dyn Unit>; 2]| {
        for _ in 0..4 {
            control.turn();
            queues.iter_mut().for_each(|queue| {
                queue.turn();
            });
        }
        control.turn();
    };
    let responses = |host: &mut Host| {
        let mut found = Vec::new();
        for which in 0..2 {
            while let Some((head, ended)) = host.ended(which) {
                found.push((which, head, ended.response));
            }
        }
        found.sort_unstable();
        found
    };
    let unit = address(0, 0);
    for (what, id, ends, code, is_ended) in [
        (task::ABORT_TASK, 100, response::ABORTED, None, [true, false, false]),
        (task::ABORT_TASK_SET, 0, response::ABORTED, None, [true, true, true]),
        (task::CLEAR_TASK_SET, 0, response::ABORTED, None, [true, true, true]),
        (task::LUN_RESET, 0, response::RESET, Some(Code::DEVICE_RESET), [true, true, true]),
        (task::NEXUS_RESET, 0, response::RESET, Some(Code::NEXUS_LOSS), [true, true, true]),
    ] {
        gate.shut(true);
        other.shut(true);
        host.offer(0, 0, 0, read(0, 1), (DATA_AT, 512), false);
        host.offer(0, 4, 0, read(1, 1), (DATA_AT + 512, 512), false);
        host.offer(0, 8, 1, read(2, 1), (DATA_AT + 1024, 512), false);
        host.offer(1, 0, 0, write(3, 1), (DATA_AT + 2048, 512), true);
        // No queue has taken a command yet when the task comes.
        host.offer_task(0, Task { what, address: unit, id });
        turn(&mut control, &mut queues);
        assert_eq!((responses(&mut host), host.answer()), (vec![], None), "they are under way");
        gate.shut(false);
        turn(&mut control, &mut queues);
        // The command of queue 1 has the same id as the first of queue 0.
        let is_first = what == task::ABORT_TASK;
        let end = |is_ended: bool| if is_ended { ends } else { response::OK };
        let expected = vec![
            (0, 0, end(is_ended[0])),
            (0, 4, end(is_ended[1])),
            (1, 0, end(is_first || is_ended[2])),
        ];
        assert_eq!(responses(&mut host), expected, "{what}");
        assert_eq!(host.answer(), Some(response::OK));
        other.shut(false);
        turn(&mut control, &mut queues);
        assert_eq!(responses(&mut host), [(0, 8, response::OK)]);
        if let Some(code) = code {
            let ready = host.run_on(&mut queues[0], 0, Scsi::TestUnitReady, none(), false);
            ready.checks(Key::UnitAttention, code);
        }
        host.run_on(&mut queues[0], 1, Scsi::TestUnitReady, none(), false).is_good(0);
    }

    // The next tasks are queries.
    gate.shut(true);
    host.offer(1, 0, 0, read(0, 1), (DATA_AT, 512), false);
    for (what, id, answer) in [
        (task::QUERY_TASK, 100, response::FUNCTION_SUCCEEDED),
        (task::QUERY_TASK, 101, response::OK),
        (task::QUERY_TASK_SET, 0, response::FUNCTION_SUCCEEDED),
        (2, 0, response::FUNCTION_REJECTED),
        (99, 0, response::FUNCTION_REJECTED),
    ] {
        host.offer_task(2, Task { what, address: unit, id });
        turn(&mut control, &mut queues);
        assert_eq!(host.answer(), Some(answer), "{what} {id}");
    }
    for (address, answer) in [
        (address(5, 0), response::BAD_TARGET),
        (address(0, 3), response::INCORRECT_LUN),
        ([7; 8], response::INCORRECT_LUN),
    ] {
        host.offer_task(2, Task { what: task::LUN_RESET, address, id: 0 });
        turn(&mut control, &mut queues);
        assert_eq!(host.answer(), Some(answer));
    }
    // The tasks concern events, of which there are none.
    host.put(TASKS_AT, &KIND_QUERY_EVENTS.to_le_bytes());
    host.put(ANSWERS_AT, &[0xEE; 5]);
    host.control.describe(0, TASKS_AT, 16, NEXT, 1);
    host.control.describe(1, ANSWERS_AT, 5, WRITE, 0);
    host.control.offer(0);
    control.turn();
    assert_eq!(host.control.take().unwrap().len, 5);
    assert_eq!(host.get(ANSWERS_AT, 5), [0; 5]);

    // A task that waits when its queue stops fails.
    host.offer_task(2, Task { what: task::ABORT_TASK, address: unit, id: 100 });
    control.turn();
    control.stop();
    assert_eq!(host.answer(), Some(response::FAILURE));
    gate.shut(false);
    for queue in queues {
        assert!(!queue.stop().is_broken);
    }
    assert_eq!(responses(&mut host).len(), 1);
    assert!(host.controller.targets().len() == 2);
}
