use super::*;
use crate::options::{Limits, Plan, settle};

fn files(path: &Path) -> io::Result<String> {
    match path.to_string_lossy().as_ref() {
        "jobs/shared.fio" => Ok("iodepth=4\r\nthread\r\n".to_owned()),
        "jobs/loop.fio" => Ok("include loop.fio\n".to_owned()),
        "jobs/section.fio" => Ok("[b]\n".to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    }
}

fn sections(text: &str, only: &[&str]) -> Result<Vec<Section>> {
    let environment = |name: &str| (name == "SIZE").then(|| "64m".to_owned());
    let outside = Outside { include: &files, environment: &environment };
    let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
    parse(text, Path::new("jobs/a.fio"), &[], &only, &outside)
}

fn plan(text: &str) -> Result<Plan> {
    settle(&sections(text, &[])?, Limits::default())
}

#[track_caller]
fn fails(text: &str, words: &[&str]) {
    let error = plan(text).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "no \"{word}\" in: {error}");
    }
}

#[test]
fn options_belong_to_their_sections() {
    let text = "\u{feff}; comment\r\n\r\n[global]\r\nrw = randread ; comment\r\nbs=8k # comment\r\n\r\n\
                [a] ; comment\r\nsize=${SIZE}\r\ninclude shared.fio\r\n  [b c]\r\nbs=16k\r\n\
                [global]\r\nbs=32k\r\n[d]\r\n";
    let sections = sections(text, &[]).unwrap();
    let values = |at: usize| -> Vec<String> {
        let Section { global, own, .. } = &sections[at];
        let value = |given: &Given| {
            format!("{}={}", given.option.name, given.value.as_deref().unwrap_or("-"))
        };
        global.iter().chain(own).map(value).collect()
    };
    assert_eq!(sections.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "b c", "d"]);
    assert_eq!(values(0), ["rw=randread", "bs=8k", "size=64m", "iodepth=4", "thread=-"]);
    assert_eq!(values(1), ["rw=randread", "bs=8k", "bs=16k"]);
    assert_eq!(values(2), ["rw=randread", "bs=8k", "bs=32k"]);
    assert_eq!(sections[0].place.to_string(), "jobs/a.fio:7: ");
    assert_eq!(sections[0].own[1].place.to_string(), "jobs/shared.fio:1: ");
}

#[test]
fn wrong_lines_are_named() {
    fails("bs=4k\n[a]\n", &["jobs/a.fio:1: ", "before the first section", "[global]"]);
    fails(
        "[a]\n\n; x\niodpeth=4\n",
        &["jobs/a.fio:4: there is no option \"iodpeth\"", "did you mean iodepth"],
    );
    fails("[a]\nlockmem=1\n", &["jobs/a.fio:2: fio's option lockmem is not supported"]);
    // One error reports all faults.
    fails(
        "[a]\nlockmem=1\nrw=read\niodpeth=4\n[b]\nnice=-5\n",
        &[
            "jobs/a.fio:2: fio's option lockmem",
            "jobs/a.fio:4: there is no option",
            "jobs/a.fio:6: fio's option nice",
        ],
    );
    fails(
        "[a]\nbs=x\nfilename=x\nsize=1m\n[b]\nioengine=falloc\n",
        &["jobs/a.fio:2: ", "jobs/a.fio:6: ", "fio's engine falloc"],
    );
    fails("[a\nbs=4k\n", &["jobs/a.fio:1: ", "not closed"]);
    fails("[]\n", &["jobs/a.fio:1: ", "has no name"]);
    fails("[a] bs=4k\n", &["jobs/a.fio:1: ", "\"bs=4k\" cannot follow"]);
    fails("[a]\nsize=12x\n", &["jobs/a.fio:2: ", "job a", "size=12x", "not a unit of size"]);
    fails("[a]\nbs=\n", &["jobs/a.fio:2: ", "has no value"]);
    fails("[a]\nbs=${NOTHING}\n", &["jobs/a.fio:2: ", "has no value"]);
    fails("[a]\nbs=${SIZE\n", &["jobs/a.fio:2: ", "not closed"]);
    fails("[a]\n=4\n", &["jobs/a.fio:2: ", "there is no option"]);
    fails("[global]\nbs=4k\n", &["no job"]);
    fails("", &["no job"]);
}

#[test]
fn included_files_are_beside_the_file() {
    fails("[a]\ninclude loop.fio\n", &["jobs/loop.fio:1: ", "includes itself"]);
    fails("[a]\ninclude section.fio\n", &["jobs/section.fio:1: ", "an included file"]);
    fails("[a]\ninclude missing.fio\n", &["jobs/a.fio:2: including jobs/missing.fio"]);
    fails("[a]\ninclude ;\n", &["jobs/a.fio:2: "]);
}

#[test]
fn sections_are_chosen_by_name() {
    let text = "[global]\nbs=8k\n[a]\nnobody_knows=1\n[b]\niodepth=2\n";
    let chosen = sections(text, &["b"]).unwrap();
    assert_eq!((chosen.len(), chosen[0].name.as_str(), chosen[0].global.len()), (1, "b", 1));
    assert!(sections(text, &["c"]).unwrap().is_empty());
}

#[test]
fn a_deep_chain_of_includes_ends() {
    let include = |path: &Path| {
        let name = path.to_string_lossy();
        Ok(format!("include {}x", name.strip_prefix("jobs/").unwrap_or(&name)))
    };
    let outside = Outside { include: &include, environment: &|_| None };
    let error = parse("[a]\ninclude x\n", Path::new("jobs/a.fio"), &[], &[], &outside).unwrap_err();
    assert!(error.to_string().contains("more than 16 files"), "{error}");
}
