"""The script of the page: reading values off, and showing one run alone."""

SCRIPT = """
(function(){
var tip=document.createElement('div');tip.id='tip';tip.hidden=true;
document.body.appendChild(tip);
var units=[[1e3,'s'],[6e4,'min'],[36e5,'h'],[864e5,'days']];
function length(ms){if(ms<1e3)return Math.round(ms)+' ms';
for(var i=0;i<3;i++)if(ms<units[i+1][0])break;
return +(ms/units[i][0]).toPrecision(3)+' '+units[i][1]}
function show(v,kind,low){
if(kind=='share')return (v*100).toFixed(1)+' %';
if(kind=='count'||kind=='power')return ''+Math.round(v);
if(kind=='length')return length(v);
if(low>=946684800000)return new Date(v).toISOString().slice(0,16).replace('T',' ');
return length(v-low)+' in'}
function height(path,x){
if(!path.steps){path.steps=[];var m,at=0,y=0,re=/([MHV])([\\d.]+)(?: ([\\d.]+))?/g,
d=path.getAttribute('d');while(m=re.exec(d)){if(m[1]=='M'){at=+m[2];y=+m[3]}
else if(m[1]=='H'){path.steps.push([at,+m[2],y]);at=+m[2]}else y=+m[2]}}
for(var i=0;i<path.steps.length;i++){var s=path.steps[i];if(x>=s[0]&&x<=s[1])return s[2]}
return null}
function near(svg,event){
var r=svg.dataset.read.split(' '),n=r.slice(0,8).map(Number),box=svg.getBoundingClientRect(),
x=(event.clientX-box.left)*560/box.width;
if(x<n[0]||x>n[1]){tip.hidden=true;return}
var part=(x-n[0])/(n[1]-n[0]),
v=r[8]=='length'?n[4]*Math.pow(n[5]/n[4],part):n[4]+part*(n[5]-n[4]),
lines=[(r[8]=='length'?'within ':'')+show(v,r[8],n[4])];
svg.querySelectorAll('[data-name]').forEach(function(path){
var t=n[2],b=n[3];if(path.dataset.box){var q=path.dataset.box.split(' ');t=+q[0];b=+q[1]}
var y=height(path,x);
if(y!==null)lines.push(path.dataset.name+': '+
show(r[9]=='power'?n[6]*Math.pow(n[7]/n[6],(b-y)/(b-t)):n[6]+(b-y)/(b-t)*(n[7]-n[6]),
r[9],0))});
put(lines.join('\\n'),event)}
function put(words,event){tip.textContent=words;tip.hidden=false;
tip.style.left=Math.min(event.clientX+14,innerWidth-tip.offsetWidth-8)+'px';
tip.style.top=Math.min(event.clientY+14,innerHeight-tip.offsetHeight-8)+'px'}
document.querySelectorAll('svg[data-read]').forEach(function(svg){
svg.querySelectorAll('path>title').forEach(function(t){t.remove()});
svg.addEventListener('mousemove',function(e){near(svg,e)});
svg.addEventListener('mouseleave',function(){tip.hidden=true})});
var solo=null;
function toggle(p){solo=solo===p?null:p;
document.body.classList.toggle('solo',solo!==null);
document.querySelectorAll('[data-p]').forEach(function(el){
el.classList.toggle('on',el.dataset.p===solo);
if(el.tagName=='LI')el.setAttribute('aria-pressed',el.dataset.p===solo)})}
document.querySelectorAll('.legend li[data-p]').forEach(function(li){
li.setAttribute('role','button');li.setAttribute('aria-pressed',false);li.tabIndex=0;
li.title='Show this one alone, or all again';
li.addEventListener('click',function(){toggle(li.dataset.p)});
li.addEventListener('keydown',function(e){
if(e.key=='Enter'||e.key==' '){e.preventDefault();toggle(li.dataset.p)}})});
})();
"""
"""Without it nothing is missing but reading values off and showing one run alone."""
