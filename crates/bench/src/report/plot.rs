//! Plots as SVG, for the page.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// A line in a plot.
pub(crate) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A plot of lines over a common axis.
pub(crate) struct Plot {
    pub title: String,
    pub x: &'static str,
    pub y: String,
    pub lines: Vec<Line>,
    /// Horizontal lines of the reference: name, height.
    pub marks: Vec<(String, f64)>,
    /// Names for places on the x axis, in place of numbers.
    pub ticks: Vec<(f64, &'static str)>,
    pub is_logarithmic: bool,
}

const SIZE: (u32, u32) = (720, 320);
const COLOURS: [RGBColor; 5] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 96, 26),
    RGBColor(44, 140, 60),
    RGBColor(148, 103, 189),
    RGBColor(120, 120, 120),
];
/// Dash and space of each line of the reference, in pixels.
const DASHES: [(u32, u32); 4] = [(12, 4), (6, 4), (2, 4), (12, 8)];
const REFERENCE: RGBColor = RGBColor(190, 30, 45);

/// The plot as an SVG element, or nothing if there is nothing to draw.
pub(crate) fn svg(plot: &Plot) -> String {
    let points = || plot.lines.iter().flat_map(|line| line.points.iter().copied());
    let heights = || points().map(|(_, y)| y).chain(plot.marks.iter().map(|(_, y)| *y));
    let (left, right) = range(points().map(|(x, _)| x));
    let (low, high) = range(heights());
    if points().count() < 2 || left >= right {
        return String::new();
    }
    let mut out = String::new();
    let drawn = match plot.is_logarithmic {
        true => {
            let least = heights().filter(|y| *y > 0.0).fold(high, f64::min).max(high / 1e6);
            draw(plot, left..right, (least * 0.8..high * 1.3).log_scale(), &mut out)
        }
        false => draw(plot, left..right, 0f64.min(low)..high.max(1e-9) * 1.1, &mut out),
    };
    if drawn.is_err() { String::new() } else { themed(&out) }
}

/// The page's own colours for ground and ink, so that a plot follows light and dark.
fn themed(svg: &str) -> String {
    svg.replace("\"#FFFFFF\"", "\"var(--ground)\"")
        .replace("\"#000000\"", "\"var(--ink)\"")
        .replace("\"#BE1E2D\"", "\"var(--bad)\"")
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

fn draw<Y>(
    plot: &Plot,
    x: std::ops::Range<f64>,
    y: Y,
    out: &mut String,
) -> Result<(), Box<dyn std::error::Error>>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let root = SVGBackend::with_string(out, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(10)
        .margin_right(30)
        .caption(&plot.title, ("sans-serif", 16))
        .x_label_area_size(36)
        .y_label_area_size(70)
        .build_cartesian_2d(x.clone(), y)?;
    let is_short = x.end - x.start < 10.0;
    let name_of = |x: &f64| {
        let tick = plot.ticks.iter().find(|(at, _)| (at - x).abs() < 0.01);
        match (tick, plot.ticks.is_empty()) {
            (Some((_, name)), _) => (*name).to_owned(),
            (None, true) if is_short => format!("{x:.1}"),
            (None, true) => format!("{x:.0}"),
            (None, false) => String::new(),
        }
    };
    chart
        .configure_mesh()
        .x_desc(plot.x)
        .y_desc(&plot.y)
        .x_labels(if plot.ticks.is_empty() { 10 } else { plot.ticks.len() * 2 })
        .x_label_formatter(&name_of)
        .y_label_formatter(&|y| super::rounded(*y))
        .light_line_style(WHITE)
        .draw()?;
    for (line, colour) in plot.lines.iter().zip(COLOURS.iter().cycle()) {
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
            .label(&line.name)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], *colour));
    }
    for (number, (name, height)) in plot.marks.iter().enumerate() {
        // Told apart by their dashes, and labelled at the line: one colour means the reference.
        let (dash, space) = DASHES[number % DASHES.len()];
        let ends = [(x.start, *height), (x.end, *height)];
        chart.draw_series(DashedLineSeries::new(ends, dash, space, REFERENCE.stroke_width(1)))?;
        let text = format!("reference, {name}: {} {}", super::rounded(*height), plot.y);
        let style = ("sans-serif", 12).into_font().color(&REFERENCE);
        let at = x.start + (x.end - x.start) * 0.01;
        chart.draw_series([EmptyElement::at((at, *height)) + Text::new(text, (0, -14), style)])?;
    }
    if plot.lines.len() < 2 {
        root.present()?;
        return Ok(());
    }
    chart
        .configure_series_labels()
        .position(if plot.is_logarithmic {
            SeriesLabelPosition::LowerRight
        } else {
            SeriesLabelPosition::UpperLeft
        })
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    Ok(())
}
