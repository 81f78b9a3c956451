// SPDX-License-Identifier: GPL-2.0-only
// Draw the flame graph of the page's data.  The names in the data come from a guest: use them
// as text only.
"use strict";
(() => {
	const data = JSON.parse(document.getElementById("data").textContent);
	const differs = data.totals.length > 1;
	const [total, oldTotal] = data.totals;

	// Lightness tells these apart in grey, too; black text can be read on all of them.
	const KINDS = {
		"guest kernel": [28, 82, 69],
		"guest user": [60, 60, 88],
		"host": [214, 45, 55],
	};
	const NOBODY = [0, 0, 93];
	const FOUND = "#d560d5";
	const css = ([hue, saturation, lightness]) => `hsl(${hue} ${saturation}% ${lightness}%)`;

	// Rows are [number of the caller, name, kind, samples, samples before]; callers come first.
	const root = { name: "all", counts: data.totals, children: [] };
	const nodes = [];
	for (const [parent, name, kind, ...counts] of data.nodes) {
		const node = { name: data.names[name], kind: data.kinds[kind], counts, children: [] };
		(parent < 0 ? root : nodes[parent]).children.push(node);
		nodes.push(node);
	}

	const share = node => node.counts[0] / total;
	const oldShare = node => node.counts[1] / oldTotal;
	const change = node => share(node) - oldShare(node);
	const largest = nodes.filter(node => differs && node.counts[0] > 0)
		.reduce((most, node) => Math.max(most, Math.abs(change(node))), 0.001);
	// A change that rounds to zero is none.
	const isSame = node => Math.abs(change(node)) < 0.0005;

	// Equal names get equal colors, near that of their kind.
	function shade(node) {
		let hash = 7;
		for (const character of node.name)
			hash = (hash * 31 + character.codePointAt(0)) % 997;
		const [hue, saturation, lightness] = KINDS[node.kind] || NOBODY;
		return [hue + hash % 13 - 6, saturation, lightness + hash % 7 - 3];
	}

	// A box that grew is red, and one that shrank is blue; a larger change is darker.  In grey,
	// the arrows of label() tell these boxes apart.
	function changed(node) {
		if (node === root || isSame(node))
			return [0, 0, 90];
		const strength = Math.min(1, Math.abs(change(node)) / largest);
		return change(node) > 0 ? [6, 85, 86 - 30 * strength] : [214, 85, 88 - 16 * strength];
	}

	let searching = false;
	function color(d) {
		if (d.highlight)
			return FOUND;
		const [hue, saturation, lightness] = differs ? changed(d.data) :
			d.data === root ? NOBODY : shade(d.data);
		return css([hue, saturation, searching ? lightness + 0.6 * (100 - lightness) : lightness]);
	}

	function label(d) {
		const node = d.data;
		if (!differs || node === root || isSame(node))
			return node.name;
		return (change(node) > 0 ? "\u25b2" : "\u25bc") + node.name;
	}

	const percent = part => `${(100 * part).toFixed(1)} %`;
	const samples = count => `${count} sample${count === 1 ? "" : "s"}`;
	function describe(d) {
		const node = d.data;
		const own = node.counts[0] - node.children.reduce((sum, child) => sum + child.counts[0], 0);
		const lines = [node.name, node.kind || "all stacks",
			`${samples(node.counts[0])}, ${percent(share(node))} of all; ${own} in itself`];
		if (differs) {
			const points = 100 * change(node);
			lines.push(`before: ${samples(node.counts[1])}, ${percent(oldShare(node))}; ` +
				`change: ${points < 0 ? "\u2212" : "+"}${Math.abs(points).toFixed(1)} points`);
		}
		return lines.join("\n");
	}

	const found = document.getElementById("found");
	const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
	const chart = flamegraph.default()
		.cellHeight(18).minFrameSize(0.4).transitionDuration(still ? 0 : 150)
		.getName(label).getValue(node => node.data ? node.data.counts[0] : node.counts[0])
		.setColorMapper(color)
		.tooltip(flamegraph.tooltip.defaultFlamegraphTooltip().text(describe));

	function matcher(term) {
		try {
			const expression = new RegExp(term, "i");
			return name => expression.test(name);
		} catch {
			return name => name.toLowerCase().includes(term.toLowerCase());
		}
	}
	let matches = () => false;
	chart.setSearchMatch(d => d.data !== root && matches(d.data.name));
	chart.setSearchHandler((results, sum) => {
		found.textContent = searching ?
			`${results.length} boxes, ${samples(sum)}, ${percent(sum / total)} of all` : "";
	});

	const place = document.getElementById("chart");
	const fit = () => chart.width(Math.max(300, place.clientWidth));
	fit();
	d3.select(place).datum(root).call(chart);
	window.addEventListener("resize", () => { fit(); chart.update(); });
	document.getElementById("reset").addEventListener("click", () => chart.resetZoom());
	document.getElementById("search").addEventListener("input", event => {
		const term = event.target.value;
		searching = term !== "";
		matches = matcher(term);
		if (searching)
			chart.search(term);
		else
			chart.clear();
		if (!searching)
			found.textContent = "";
	});

	const used = new Set(nodes.map(node => node.kind));
	const keys = differs ? [
		["\u25b2 larger share than before", css([6, 85, 56])],
		["\u25bc smaller share", css([214, 85, 72])],
		["as before", css([0, 0, 90])],
	] : Object.keys(KINDS).filter(kind => used.has(kind)).map(kind => [kind, css(KINDS[kind])]);
	for (const [text, fill] of keys) {
		const item = d3.select("#legend").append("span").style("margin-right", "12px");
		item.append("span").attr("class", "key").style("background", fill);
		item.append("span").text(text);
	}
})();
