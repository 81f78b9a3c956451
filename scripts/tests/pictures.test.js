// SPDX-License-Identifier: GPL-2.0-only
// Use what hostlib/pictures.py has drawn, in a browser, and read it by others' importers.
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { after, afterEach, before, beforeEach, describe, it } = require("node:test");
const zlib = require("node:zlib");
const { chromium } = require("playwright-core");
const { Profile } = require("pprof-format");

const folder = process.env.PICTURES;
const expected = JSON.parse(fs.readFileSync(path.join(folder, "expected.json")));
const url = name => `file://${path.join(folder, name)}`;

let browser, page, profile, errors, requests;

const boxes = () => page.locator("g.frame");
const box = name => page.locator(`g.frame[name=${JSON.stringify(name)}]`);
const fill = name => box(name).locator("rect").first()
	.evaluate(rect => getComputedStyle(rect).fill.match(/[\d.]+/g).map(Number));
// The library takes a while to move and to fade.
const settle = () => page.waitForTimeout(400);

async function open(name) {
	await page.goto(url(name));
	await boxes().first().waitFor();
	await settle();
}

async function tip(name) {
	await page.mouse.move(1, 1);
	await box(name).locator("rect").first().hover();
	await settle();
	return page.locator(".d3-flame-graph-tip").innerText();
}

async function search(term) {
	await page.fill("#search", term);
	await settle();
	return page.locator("#found").innerText();
}

// What a picture in grey shows of a color.
const grey = ([r, g, b]) => (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;

describe("pictures", () => {
	before(async () => {
		profile = fs.mkdtempSync(path.join(os.tmpdir(), "chromium-"));
		browser = await chromium.launchPersistentContext(profile, {
			executablePath: "/usr/bin/chromium", headless: true,
			reducedMotion: "reduce", viewport: { width: 1200, height: 700 },
			args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
			       "--disable-background-networking", "--disable-component-update",
			       "--disable-sync"] });
	});

	after(async () => {
		await browser.close();
		fs.rmSync(profile, { recursive: true });
	});

	beforeEach(async () => {
		[errors, requests] = [[], []];
		page = await browser.newPage();
		page.on("pageerror", error => errors.push(error.message));
		page.on("request", request => requests.push(request.url()));
	});

	afterEach(async () => {
		await page.close();
		assert.deepEqual(errors, []);
	});

	it("the page draws all that it has, tells of a box what it is, and loads nothing", async () => {
		await open("guest.html");
		assert.equal(await page.title(), expected.title);
		assert.equal(await boxes().count(), expected.guest_boxes);
		assert.match(await tip("vfs_read"), /^vfs_read\nguest kernel\n6 .* 60\.0 % .* 2 /);
		assert.deepEqual(requests, [url("guest.html")]);
	});

	it("a click zooms, and the button zooms out", async () => {
		await open("guest.html");
		const width = async name => (await box(name).locator("rect").boundingBox()).width;
		const before = await width("vfs_read"), all = await width("all");
		await box("vfs_read").locator("rect").click();
		await settle();
		assert.ok(Math.abs(await width("vfs_read") - all) < 2 && before < 0.7 * all);
		assert.equal(await box("vfs_write").count(), 0);
		await page.click("#reset");
		await settle();
		assert.ok(Math.abs(await width("vfs_read") - before) < 2);
		assert.equal(await boxes().count(), expected.guest_boxes);
	});

	it("a search marks boxes and counts their samples", async () => {
		await open("guest.html");
		const before = await fill("vfs_read");
		assert.match(await search("^VFS_"), /^2 .* 9 .* 90\.0 %/);
		assert.deepEqual(await fill("vfs_read"), await fill("vfs_write"));
		assert.ok(grey(await fill("vfs_read")) < grey(await fill("do_syscall_64")) - 0.2);
		assert.match(await search("("), /^0 .* 0 .* 0\.0 %/);
		assert.equal(await search(""), "");
		assert.deepEqual(await fill("vfs_read"), before);
	});

	it("host and guest meet in the VMM's thread, and can be told apart in grey", async () => {
		await open("joined.html");
		assert.match(await tip("CPU 0/KVM"), /\nhost\n12 .* 100\.0 %/);
		assert.match(await tip("KVM_RUN (guest)"), /\n10 .* 83\.3 %/);
		assert.match(await tip("kvm_vcpu_ioctl"), /\nhost\n2 .* 16\.7 %/);
		const legend = await page.locator("#legend").innerText();
		assert.equal(legend, "guest kernelguest userhost");
		// Names can be read on the darkest.
		let darker = 0.3;
		for (const name of ["kvm_vcpu_ioctl", "vfs_read", "main"]) {
			const lightness = grey(await fill(name));
			assert.ok(lightness > darker + 0.1, name);
			darker = lightness;
		}
	});

	it("a difference has arrows and both shares", async () => {
		await open("diff.html");
		assert.match(await tip("\u25b2vfs_read"), /\n6 .* 60\.0 %.*\n.* 6 .* 30\.0 %.*\+30\.0/);
		assert.match(await tip("\u25bcvfs_write"), / 12 .* 60\.0 %.*\u221230\.0/);
		assert.ok(grey(await fill("\u25b2vfs_read")) < grey(await fill("main")) - 0.1);
		assert.equal(await box("main").count(), 1);
	});

	it("names of a hostile guest are text", async () => {
		await open("hostile.html");
		for (const name of expected.hostile)
			assert.equal((await tip(name)).replace(/\n(guest|all).*/s, ""), name);
		assert.equal(await page.title(), "hostile");
		assert.equal(await page.locator("img").count(), 0);
		assert.deepEqual(requests, [url("hostile.html")]);
	});

	it("speedscope opens what perf script prints", async () => {
		await page.goto(url("node_modules/speedscope/dist/release/index.html"));
		await page.setInputFiles("input[type=file]", path.join(folder, "script.txt"));
		await page.getByText("Sandwich").click();
		for (const thread of ["work pid: 77 tid: 77", "CPU 0/KVM pid: 300 tid: 301"])
			await page.getByText(thread).first().waitFor({ state: "attached" });
		const table = (await page.locator("body").innerText()).split("\n").map(row => row.trim());
		for (const name of ["copy_to_user", "vfs_read", "do_syscall_64", "main"])
			assert.ok(table.includes(name), table.join("\n"));
	});

	it("pprof-format reads the profile", () => {
		const read = Profile.decode(zlib.gunzipSync(fs.readFileSync(path.join(folder, "guest.pb.gz"))));
		const text = index => read.stringTable.strings[Number(index)];
		const functions = new Map(read.function.map(entry => [entry.id, text(entry.name)]));
		const locations = new Map(read.location.map(entry =>
			[entry.id, functions.get(entry.line[0].functionId)]));
		const stacks = Object.fromEntries(read.sample.map(sample => [
			sample.locationId.map(id => locations.get(id)).reverse().join(";"),
			`${sample.value.map(Number)} ${text(sample.label[0].str)}`]));
		assert.deepEqual(stacks, expected.pprof);
		assert.deepEqual(read.sampleType.map(type => [text(type.type), text(type.unit)]),
				 [["samples", "count"]]);
	});
});
