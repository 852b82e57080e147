//! The report: one HTML file that contains its style and plots. It loads no other file and has no
//! scripts.
//!
//! `page` is the whole page, `experiment` the section of one experiment.

mod experiment;
mod page;

pub use page::to_html;

#[cfg(test)]
mod tests {
    use qpair_plots::{Look, escape};

    use super::*;
    use crate::papers::experiments;
    use crate::report::StudyReport;
    use crate::synthetic::{speed, study};

    fn report(devices: usize) -> StudyReport {
        let names = ["posix", "libaio", "io_uring", "io_uring+p", "io_uring+k"];
        study(4, devices, &names, |config, round| {
            let mut measure = speed(config, round, 100e3);
            measure.instructions_per_byte = Some(0.5);
            measure.submit_share = Some(0.5);
            if matches!(config.pace, crate::Pace::Prolonged { .. }) {
                measure.over_time = vec![1e9; 30];
                measure.sample_s = 1.0;
            }
            Some(measure)
        })
    }

    /// Asserts that elements are closed in the reverse order of their opening, except those that
    /// HTML never closes.
    fn assert_nested(html: &str) {
        let mut open: Vec<&str> = Vec::new();
        let body = html.split("</style>").last().unwrap();
        for piece in body.split('<').skip(1) {
            let tag = piece.split('>').next().unwrap();
            let name = tag.split([' ', '\n', '/']).find(|word| !word.is_empty()).unwrap();
            if ["meta", "link", "br"].contains(&name) || tag.ends_with('/') {
                continue;
            }
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "</{name}> near {piece}");
            } else {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "left open: {open:?}");
    }

    #[test]
    fn the_page_is_whole() {
        for devices in [1, 3] {
            let report = report(devices);
            let html = to_html(&report, "today").unwrap();
            // The head is closed before the style's end.
            let body = html.replacen("<body>", "<html><body>", 1).replacen("</head>", "", 1);
            assert_nested(&body);
            for experiment in experiments() {
                assert!(html.contains(&format!("id=\"{}\"", experiment.name)));
            }
            // The order is the answer, a plot, a row for each paper, and then the findings.
            assert!(html.contains("</h1>\n<div class=\"advice\">\n<p><strong>Use "));
            let place = |text: &str| html.find(text).unwrap();
            let order = [
                "on this machine, because ",
                "<figure>",
                "The five papers, here",
                "<a href=\"#S1\">S1</a>: Understanding",
                "<a href=\"#S5\">S5</a>: SPDK",
                "The papers' findings, here",
                "Resolution: ",
                "<h3 id=\"S5\">",
                "<h2>Interfaces</h2>",
            ];
            let places = order.map(place);
            assert!(places.is_sorted(), "{places:?}");
            for row in crate::catalogue() {
                assert!(html.contains(&escape(row.claim)), "{}", row.name);
            }
            let plots: usize = report
                .experiments
                .iter()
                .map(|experiment| {
                    // The page has latency by throughput, and its distribution at the lowest and
                    // the highest load.
                    let more = if experiment.latency_against_throughput() { 3 } else { 0 };
                    let groups = &experiment.plan.groups;
                    match experiment.plan.over_time {
                        // Each series has a plot.
                        true => groups.iter().map(|group| group.series.len()).sum(),
                        false => groups.len() * (experiment.plan.shown.len() + more),
                    }
                })
                .sum();
            assert_eq!(html.matches("<figure>").count(), plots + 1);
            assert_eq!(html.matches("<svg role=\"img\"").count(), plots + 1);
            // The page fetches nothing, runs no scripts, and has no broken number.
            for forbidden in
                ["<script", "http-equiv", "src=", "url(", "@import", "NaN", "inf ", "inf<"]
            {
                assert!(!html.contains(forbidden), "{forbidden}");
            }
            let links = html.matches("http").count();
            assert_eq!(links, html.matches("http://www.w3.org/2000/svg").count());
        }
    }

    #[test]
    fn a_study_survives_being_stored() {
        let report = report(2);
        let json = report.to_json().unwrap();
        let again = StudyReport::from_json(&json).unwrap();
        assert!(again.to_json().unwrap() == json, "other JSON");
        assert!(
            to_html(&again, "today").unwrap() == to_html(&report, "today").unwrap(),
            "another page"
        );
        for (text, what) in [
            ("{}", "no \"format\""),
            ("nonsense", "not a stored study"),
            ("{\"format\":\"qpair-study\",\"version\":9}", "version 9"),
        ] {
            let error = StudyReport::from_json(text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_study_of_failures_has_a_page() {
        let failed = study(2, 1, &["libaio", "io_uring"], |_, _| None);
        let html = to_html(&failed, "today").unwrap();
        assert!(html.contains("Runs that failed"));
        assert!(html.contains("</h1>\n<div class=\"advice\">\n<p><strong>This study does not say"));
    }

    #[test]
    fn interfaces_look_different() {
        let names = crate::INTERFACES.iter().map(|candidate| candidate.name);
        let looks: Vec<Look> =
            names.chain([crate::USER_SPACE]).map(|name| Look::of(name, 0)).collect();
        for (at, look) in looks.iter().enumerate() {
            assert!(!looks[..at].contains(look), "{look:?}");
        }
    }
}
